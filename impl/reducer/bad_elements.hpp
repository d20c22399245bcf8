// NaNs and infinities among the gradients of one iteration on devices: counted by the launches that gather
// them, and searched for once there are some.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "device/context.hpp"
#include "reducer/place.hpp"

namespace dsc {

// One thread at a time.
class BadElements {
 public:
  // What one operation has read, or what is left of it: its sum.
  struct Input {
    struct Part {
      const void* memory;
      size_t count;
      size_t at;  // elements from the start of the bucket
    };
    std::vector<Part> parts;
    int32_t dtype = 0;
    uint64_t number = 0;  // of the operation
  };
  // On the stream that find() was given, it may be read.
  using InputOf = std::function<Input(size_t bucket)>;

  BadElements(const DeviceContext& context, Comm& group, size_t buckets);
  ~BadElements();
  BadElements(const BadElements&) = delete;
  BadElements& operator=(const BadElements&) = delete;

  // Reads what is wanted from now on. Throws STATE in a capture: whether there are some is known on the host,
  // later.
  void expect(bool captured);
  void begin(CudaStream* stream);
  // What was allocated stays: it may still be in use.
  void keep() noexcept { norms_ = 0; }
  NonFiniteCheck check() const noexcept { return check_; }
  bool looks() const noexcept { return check_ != NonFiniteCheck::kOff; }
  // Where the launches of a bucket count; 0: nowhere.
  CudaAddress norm_of(size_t bucket, int32_t dtype) const;

  // Collective: waits for what is on the stream, and adds what all ranks have found to the group's ledger.
  // The first, when it is a failure.
  std::optional<BadBucket> find(CudaStream* stream, const InputOf& input_of);

 private:
  struct Found;
  const Device& device() const noexcept { return *context_.device; }
  void wait_for_stream(CudaStream* stream) const;
  void read(void* to, CudaAddress from, size_t bytes, CudaStream* stream) const;
  std::vector<uint64_t> counts(CudaStream* stream) const;
  size_t first_index(CudaStream* stream, const Input& input) const;

  const DeviceContext context_;
  Comm& group_;
  const size_t buckets_;
  NonFiniteCheck check_ = NonFiniteCheck::kOff;
  CudaAddress norms_ = 0;  // one for each bucket, and then their results, one after another
};

}  // namespace dsc
