// Moves data part by part through the members' stages. Two stages alternate, and they stay in the cache.
//
// A rank can write a cache line again several times faster if another processor that has read the line has
// also written it (docs/decisions.md). Therefore, if only one rank reads a line of a stage, it also writes
// the line. Reductions that are divided among the ranks leave the result in all stages.
#pragma once

#include "comm/transfer.hpp"
#include "engine_host/operation.hpp"

namespace dsc {

class Staged {
 public:
  // `found`, if not null, counts the inputs that are not finite.
  Staged(Group& group, const Transfer& transfer, NonFinite* found);

  // True if ranks may share a reduction. With two ranks, a reduce is faster if the root does all of it.
  static bool may_divide(Pattern pattern, int size) noexcept {
    return pattern == Pattern::kAllReduce || (pattern == Pattern::kReduce && size > 2);
  }

  // Writes the first part of this rank's data into its next stage, before the members arrive.
  void fill_first();
  // Called if all members have already arrived with their first part in their stages. If it is not called,
  // step() writes the first part.
  void find_shown() noexcept { phase_ = Phase::kMeet; }

  Progress step();
  // True if step() waits only for the arrival of all members.
  bool awaits_arrival() const noexcept {
    return phase_ == Phase::kMeet || plan_.algorithm == Algorithm::kDivided;
  }
  Algorithm algorithm() const noexcept { return plan_.algorithm; }

 private:
  enum class Phase { kShow, kMeet, kAwaitResults };

  struct Range {
    size_t first;
    size_t elements;
  };

  // The choices that every rank derives from the call. They are equal on all ranks.
  struct Plan {
    Plan(const Group& group, const Transfer& transfer) noexcept;
    Range share_of(int member, size_t elements) const noexcept;
    void fill(std::byte* stage, size_t first) const;

    const Transfer& transfer;
    Algorithm algorithm;
    size_t part;         // elements of a full part of a block
    size_t stage_bytes;  // bytes of one part of all blocks
  };

  size_t elements() const noexcept;
  bool bypasses_caches() const noexcept;
  std::byte* stage(int member) const noexcept { return group_.data(member, epoch_, plan_.stage_bytes); }
  std::byte* next_stage() const noexcept {
    return group_.data(group_.rank(), group_.epoch() + 1, plan_.stage_bytes);
  }
  bool results_complete() noexcept;
  void work();
  void move_directly();
  void copy_block(int sender);
  void reduce_directly();
  void work_on_share();
  void work_on_chunks();
  void reduce(size_t offset, Range range, const void* own, void* target, bool into_stages);
  void read_back();
  void read_back(Range range);
  void publish(size_t first);

  Group& group_;
  const Transfer& transfer_;
  const Plan plan_;
  const bool alone_;     // true if no other rank reads what this rank reads in the stages
  size_t first_ = 0;     // element at which the current part starts
  uint64_t epoch_ = 0;   // the epoch in which the current part is valid
  uint64_t chunks_ = 0;  // number of chunks of the current part
  NonFinite* const found_;
  Phase phase_ = Phase::kShow;
};

}  // namespace dsc
