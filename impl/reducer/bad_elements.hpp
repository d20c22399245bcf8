// Finds NaNs and infinities among the gradients of one iteration on a device. The launches that gather the
// gradients count them, and only if there are some are the gradients searched.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "device/buffer.hpp"
#include "device/context.hpp"
#include "reducer/storage.hpp"

namespace dsc {

// May be used by one thread at a time.
class BadElements {
 public:
  // The memory that one operation has read or, if that was overwritten, its sum.
  struct Input {
    struct Part {
      const void* memory;
      size_t count;
      size_t at;  // elements from the start of the bucket
      int32_t dtype;
    };
    std::vector<Part> parts;
    uint64_t number = 0;  // number of the operation
  };
  // Returns the input of a bucket, which may be read on the stream that find() was given.
  using InputOf = std::function<Input(size_t bucket)>;

  BadElements(const DeviceContext& context, Comm& group, size_t buckets);
  BadElements(const BadElements&) = delete;
  BadElements& operator=(const BadElements&) = delete;

  // Reads the group's check for the next iteration. Throws STATE if gradients are to be checked in a
  // capture, because the host must read the counts afterwards.
  void expect(bool captured);
  void begin(DeviceStream* stream);
  // Never frees the device memory, because it may still be in use.
  void keep() noexcept { (void)norms_.release(); }
  NonFiniteCheck check() const noexcept { return check_; }
  bool looks() const noexcept { return check_ != NonFiniteCheck::kOff; }
  // Returns where the launches of a bucket count; 0: they do not count.
  DeviceAddress norm_of(size_t bucket, int32_t dtype) const;

  // Collective: waits for the stream and adds the counts of all ranks to the group's ledger. Returns the
  // first bad element if the check treats it as a failure.
  std::optional<BadBucket> find(DeviceStream* stream, const InputOf& input_of);

 private:
  struct Found;
  const Device& device() const noexcept { return *context_.device; }
  std::vector<uint64_t> counts(DeviceStream* stream) const;
  size_t first_index(DeviceStream* stream, const Input& input) const;

  const DeviceContext context_;
  Comm& group_;
  const size_t buckets_;
  NonFiniteCheck check_ = NonFiniteCheck::kOff;
  std::unique_ptr<DeviceBuffer> norms_;  // one norm for each bucket, followed by one result for each
};

}  // namespace dsc
