#include "host/transfer.hpp"

#include "dsc/types.h"
#include "dtype/dtype.hpp"

namespace dsc {

Pattern pattern_of(OpKind kind) noexcept {
  switch (kind) {
    case OpKind::kAllReduce:
      return Pattern::kAllReduce;
    case OpKind::kBroadcast:
      return Pattern::kBroadcast;
    case OpKind::kAllGather:
    case OpKind::kSplit:
    case OpKind::kCreateGroup:
    case OpKind::kMemAlloc:
    case OpKind::kVerify:
    case OpKind::kPipeRun:
      return Pattern::kAllGather;
    case OpKind::kReduceScatter:
      return Pattern::kReduceScatter;
    default:
      return Pattern::kNothing;
  }
}

Transfer::Transfer(const Call& call, int rank_in, int size_in) noexcept
    : pattern(call.count == 0 ? Pattern::kNothing : pattern_of(call.kind)),
      rank(rank_in),
      size(size_in),
      root(call.root),
      element_bytes(dtype_bytes(call.dtype)),
      count(call.count),
      send_bytes(0),
      recv_bytes(0),
      parts(pattern == Pattern::kReduceScatter ? static_cast<size_t>(size_in) : 1),
      send(static_cast<const std::byte*>(call.send)),
      recv(static_cast<std::byte*>(call.recv)),
      reduce{call.dtype, call.op, call.op == DSC_OP_AVG ? size_in : 1, call.prescale, false} {
  if (pattern == Pattern::kNothing) return;
  const size_t one = count * element_bytes;
  const auto all = one * static_cast<size_t>(size);
  send_bytes = pattern == Pattern::kReduceScatter               ? all
               : pattern == Pattern::kBroadcast && rank != root ? 0
                                                                : one;
  recv_bytes = pattern == Pattern::kAllGather ? all : one;
}

}  // namespace dsc
