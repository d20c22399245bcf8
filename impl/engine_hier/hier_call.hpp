// A collective between hosts, with helpers for the code that moves its data.
#pragma once

#include <cstddef>
#include <vector>

#include "control/call.hpp"
#include "dtype/reduce.hpp"
#include "engine_hier/hier_context.hpp"

namespace dsc {

class HierCall {
 public:
  HierCall(HierContext& context, const Call& call) noexcept
      : context_(context), layout_(context.layout), call_(call) {}

  bool one_rank_per_host() const noexcept;

 protected:
  ~HierCall() = default;

  // Scratch memory of this rank, which later operations reuse.
  enum Scratch { kOwn, kUp, kUpOther, kDown, kDownOther };
  std::byte* scratch(Scratch which, size_t bytes);

  std::vector<size_t> lengths() const;  // bytes of each rank's block
  const std::byte* sent(size_t byte) const { return static_cast<const std::byte*>(call_.send) + byte; }
  std::byte* received(size_t byte) const { return static_cast<std::byte*>(call_.recv) + byte; }

  // 8- and 16-bit floats are summed in f32 and rounded once.
  bool widens() const noexcept;
  int32_t work_type() const noexcept;
  ReduceSpec between_hosts() const noexcept;
  static void convert(void* to, int32_t to_type, const void* from, int32_t from_type, size_t count);

  HierContext& context_;
  const HierLayout& layout_;
  const Call& call_;
};

}  // namespace dsc
