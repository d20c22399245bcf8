#include "comm/local_move.hpp"

#include "dtype/reduce.hpp"

namespace dsc {

NonFinite move_locally(const Call& call, const Transfer& transfer) {
  NonFinite found;
  if (!transfer.reduces()) {
    if (transfer.pattern != Pattern::kNothing && call.send != call.recv)
      copy_bytes(call.recv, call.send, transfer.send_bytes);
    return found;
  }
  const void* source = call.send;
  void* target = call.recv;
  const bool checks = call.nonfinite != NonFiniteCheck::kOff;
  // Reduce even in place, because results contain NaN and "true" only in one canonical form.
  const bool may_change = !call.user && (is_floating(call.dtype) || call.dtype == DSC_DTYPE_BOOL);
  if (source != target || may_change || checks)
    reduce(transfer.reduce, &source, 1, &target, 1, transfer.longest, checks ? &found : nullptr);
  return found;
}

}  // namespace dsc
