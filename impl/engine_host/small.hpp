// A collective of so little data that all of it is published with the call. When all members have arrived and
// their calls agree, each rank reads what it needs and is done. Other ranks may run the same call as a
// Collective, which publishes the same data at the same addresses.
#pragma once

#include "comm/transfer.hpp"
#include "engine_host/compared.hpp"

namespace dsc {

class SmallCollective final : public ComparedOperation {
 public:
  // True if a Collective of this call would move its data through the stages in one part, and if every rank
  // would then read the others' parts itself. The result is equal on all ranks whose calls agree.
  static bool suits(const Group& group, const Call& call) noexcept;
  // Returns whether that is true of the sizes: each rank sends `block` bytes to, or receives them from, each
  // other rank. If so, another rank may publish no address of its buffers.
  static bool fits(const Group& group, Pattern pattern, size_t block) noexcept;

  SmallCollective(Group& group, const Call& call, uint64_t sequence) noexcept;

  void publish() noexcept;
  Progress step() override;
  bool may_step() noexcept { return group_.all_arrived() || group_.revoked(); }
  Progress depart() override { return Progress::kFailed; }

 private:
  void arrive() noexcept;
  Progress pending() const noexcept { return group_.revoked() ? Progress::kFailed : Progress::kPending; }
  bool all_here() noexcept;
  bool shows() const noexcept;
  const std::byte* block_from(int sender) const noexcept;
  void read();
  void reduce();
  void copy_blocks() const noexcept;

  const Pattern pattern_;
  const size_t block_;  // bytes that a rank sends to, or receives from, each other rank
  const size_t shown_;  // bytes that each sending rank publishes
  bool arrived_ = false;
};

}  // namespace dsc
