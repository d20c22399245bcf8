// Data that passes through the members' stages, part by part, in two alternating stages that stay in the
// cache.
#pragma once

#include "host/operation.hpp"
#include "host/transfer.hpp"

namespace dsc {

class Staged {
 public:
  // `shown`: the first part stands in the stage of the current tick on all members.
  // `found`, if not null, learns of the inputs that are not finite.
  Staged(Group& group, const Transfer& transfer, bool shown, NonFinite* found);

  // Puts the first part of this rank's data into a stage.
  static void fill_first(const Transfer& transfer, const Geometry& geometry, std::byte* stage);

  Progress step();
  Algorithm algorithm() const noexcept { return claimed_ ? Algorithm::kClaimed : Algorithm::kDirect; }

 private:
  enum class Phase { kShow, kMeet, kAwaitChunks };

  static size_t part_elements(const Transfer& transfer, const Geometry& geometry) noexcept;
  static size_t share(size_t count, size_t first, size_t part) noexcept;
  static void fill(const Transfer& transfer, std::byte* stage, size_t first, size_t part);
  size_t elements() const noexcept;
  void move_directly();
  void copy_block(int sender);
  void reduce_stages(size_t stage_offset, size_t elements, size_t index, void* target, const void* own) const;
  void work_on_chunks();
  void show(size_t first);

  Group& group_;
  const Transfer& transfer_;
  const size_t part_;  // elements of a full part of a block
  size_t first_ = 0;   // element at which the current part starts
  bool claimed_;       // the ranks divide the reduction among themselves
  uint64_t tick_ = 0;  // at which the current part was met
  size_t chunk_ = 0;   // elements of a claimed chunk
  uint64_t chunks_ = 0;
  NonFinite* const found_;
  Phase phase_;
};

}  // namespace dsc
