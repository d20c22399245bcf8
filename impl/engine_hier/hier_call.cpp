#include "engine_hier/hier_call.hpp"

#include "dtype/dtype.hpp"

namespace dsc {

bool HierCall::one_rank_per_host() const noexcept { return layout_.hosts() == layout_.size(); }

std::byte* HierCall::scratch(Scratch which, size_t bytes) {
  auto& memory = context_.scratch[which];
  if (memory.size() < bytes) memory = std::vector<std::byte>(bytes);
  return memory.data();
}

std::vector<size_t> HierCall::lengths() const {
  const size_t element = dtype_bytes(call_.dtype);
  const BlockList* blocks = call_.recv_blocks ? call_.recv_blocks.get() : call_.send_blocks.get();
  std::vector<size_t> bytes(static_cast<size_t>(layout_.size()), call_.count * element);
  if (blocks)
    for (size_t rank = 0; rank < bytes.size(); ++rank) bytes[rank] = blocks->lengths[rank] * element;
  return bytes;
}

bool HierCall::widens() const noexcept { return is_floating(call_.dtype) && dtype_bytes(call_.dtype) < 4; }

int32_t HierCall::work_type() const noexcept { return widens() ? DSC_DTYPE_F32 : call_.dtype; }

// The prescale is applied where inputs are first read. Inputs are first read between hosts only if each host
// has one rank. Otherwise each host has already combined the inputs of its ranks.
ReduceSpec HierCall::between_hosts() const noexcept {
  return {.dtype = work_type(),
          .op = call_.op,
          .divisor = layout_.size(),
          .prescale = one_rank_per_host() ? call_.prescale : 1.0};
}

void HierCall::convert(void* to, int32_t to_type, const void* from, int32_t from_type, size_t count) {
  if (to_type == from_type)
    copy_bytes(to, from, count * dtype_bytes(to_type));
  else
    cast(to_type, to, from_type, from, count);
}

}  // namespace dsc
