// Finds NaNs and infinities among the gradients of one iteration on a device. The launches that gather the
// gradients count them. The gradients are searched only if there are any.
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
  Failure failure;  // failure.index: the first such element of the bucket
};

// May be used by one thread at a time.
class BadElements {
 public:
  // The memory that one operation has read or, if that was overwritten, its sum.
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
  // Returns the input of a bucket, which may be read on the stream that find() was given.
  using InputOf = std::function<Input(size_t bucket)>;

  BadElements(Space& space, Comm& group, size_t buckets);
  BadElements(const BadElements&) = delete;
  BadElements& operator=(const BadElements&) = delete;

  // Reads the group's check for the next iteration. Throws STATE if gradients are to be checked in a
  // capture, because the host must read the counts afterwards.
  void expect(bool captured);
  void begin(void* stream);
  // Never frees the device memory, because it may still be in use.
  void keep() noexcept { dsc::keep(std::move(norms_)); }
  NonFiniteCheck check() const noexcept { return check_; }
  bool looks() const noexcept { return check_ != NonFiniteCheck::kOff; }
  // Returns the memory in which the launches of a bucket count; null: they do not count.
  void* norm_of(size_t bucket, int32_t dtype) const;

  // Collective: waits for the stream and adds the counts of all ranks to the group's ledger. Returns the
  // first bad element if the check treats it as a failure.
  std::optional<BadBucket> find(void* stream, const InputOf& input_of);

 private:
  struct Found;
  size_t first_index(void* stream, const Input& input) const;

  Space& space_;
  Comm& group_;
  const size_t buckets_;
  NonFiniteCheck check_ = NonFiniteCheck::kOff;
  Memory norms_;  // one for each bucket
};

}  // namespace dsc
