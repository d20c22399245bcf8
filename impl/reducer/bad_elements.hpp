// Finds NaNs and infinities among the gradients of one iteration on a device. The device counts them while it
// gathers gradients into buckets. Gradients are searched only if a count is not zero.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "memory/space.hpp"

namespace dsc {

// A bucket with elements that are not finite.
struct BadBucket {
  size_t bucket;
  Failure failure;  // failure.index is the first bad element of the bucket
};

// Only one thread at a time may use an object.
class BadElements {
 public:
  // The memory that an operation has read. If it was overwritten meanwhile, this is the memory of the
  // operation's result.
  struct Input {
    struct Part {
      const void* memory;
      size_t count;
      size_t at;  // index of the first element in the bucket
      int32_t dtype;
    };
    std::vector<Part> parts;
    uint64_t sequence = 0;  // sequence number of the operation
  };
  // Returns the input of a bucket's operation. It may be read on the stream that was passed to find().
  using InputOf = std::function<Input(size_t bucket)>;

  BadElements(Space& space, Comm& group, size_t buckets);
  BadElements(const BadElements&) = delete;
  BadElements& operator=(const BadElements&) = delete;

  // Reads how the group checks for NaNs and infinities in the next iteration. Throws STATE if gradients are
  // checked and the stream is captured, because the host must read the counts afterwards.
  void expect(bool captured);
  void begin(void* stream);
  // Leaks the device memory on purpose, because the device may still use it.
  void keep() noexcept { dsc::keep(std::move(norms_)); }
  NonFiniteCheck check() const noexcept { return check_; }
  bool looks() const noexcept { return check_ != NonFiniteCheck::kOff; }
  // Returns the device memory for the count of a bucket; null if the bucket is not counted.
  void* norm_of(size_t bucket, int32_t dtype) const;

  // Collective. Waits for the stream and adds the counts of all ranks to the record of the group. Returns the
  // first bad element if the group treats it as a failure.
  std::optional<BadBucket> find(void* stream, const InputOf& input_of);

 private:
  struct Found;
  size_t first_index(void* stream, const Input& input) const;

  Space& space_;
  Comm& group_;
  const size_t buckets_;
  NonFiniteCheck check_ = NonFiniteCheck::kOff;
  Memory norms_;  // memory on the device for one norm per bucket
};

}  // namespace dsc
