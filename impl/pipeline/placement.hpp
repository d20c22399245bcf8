// The assignment of parts of the model to stages. Parts are numbered in data-flow order.
#pragma once

#include <cstdint>

namespace dsc {

// How the parts are spread over the stages.
enum class PlacementShape {
  kLoop,    // parts go to stages 0 to n - 1, then again to 0 to n - 1
  kZigZag,  // parts go to stages 0 to n - 1, then back from n - 1 to 0
  kApart,   // every stage holds a whole model, and no data flows between stages
};

// Maps between parts and (stage, chunk).
class Placement {
 public:
  // The product of stages and chunks must fit into 31 bits.
  Placement(int32_t stages, int32_t chunks, PlacementShape shape)
      : stages_(stages), chunks_(chunks), shape_(shape) {}

  int32_t stages() const noexcept { return stages_; }
  int32_t chunks() const noexcept { return chunks_; }
  int32_t parts() const noexcept { return stages_ * chunks_; }
  PlacementShape shape() const noexcept { return shape_; }
  // has_input() returns whether a part receives its input from the preceding part. has_output() returns
  // whether it passes its output to the next part.
  bool has_input(int32_t part) const noexcept { return part > 0 && shape_ != PlacementShape::kApart; }
  bool has_output(int32_t part) const noexcept {
    return part + 1 < parts() && shape_ != PlacementShape::kApart;
  }
  int32_t chunk(int32_t part) const noexcept { return part / stages_; }
  int32_t stage(int32_t part) const noexcept { return turned(chunk(part), part % stages_); }
  int32_t part(int32_t stage, int32_t chunk) const noexcept { return chunk * stages_ + turned(chunk, stage); }

 private:
  int32_t turned(int32_t chunk, int32_t index) const noexcept {
    return shape_ == PlacementShape::kZigZag && chunk % 2 == 1 ? stages_ - 1 - index : index;
  }

  int32_t stages_;
  int32_t chunks_;
  PlacementShape shape_;
};

}  // namespace dsc
