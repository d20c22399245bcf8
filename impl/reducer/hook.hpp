// A communication hook reduces a bucket instead of the reducer, for instance in a compressed form.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "comm/tensor.hpp"
#include "comm/work.hpp"
#include "memory/space.hpp"
#include "reducer/gradient_slot.hpp"

namespace dsc {

// The bucket as a hook sees it. Its gradients are not divided: the hook makes the mean.
struct HookBucket {
  size_t index;
  bool is_last;
  int divisor;  // ranks that take part: the mean is the sum divided by this
  int32_t dtype;
  size_t count;
  std::byte* buffer;
  void* stream;                         // of a device: ordered after the gradients; null in host memory
  std::span<const size_t> params;       // indices, in the order of the buffer
  std::span<const Tensor> tensors;      // of all parameters
  std::span<const GradientSlot> slots;  // of all parameters
  Comm& group;
  Space& space;  // of the buffer: the host, unless the hook works in any memory

  Elements elements() const noexcept { return {buffer, count, dtype}; }
};

// One thread at a time calls a hook. All ranks call it for the same buckets and steps in the same order, so
// it may use the group's operations.
class BucketHook {
 public:
  virtual ~BucketHook() = default;

  virtual const std::string& name() const noexcept = 0;

  // Called once before the first bucket, and again when the buckets were rebuilt: the state that it keeps of
  // each bucket is then invalid. Throws UNSUPPORTED for gradients that it cannot reduce.
  virtual void prepare(std::span<const Tensor> params) = 0;

  // Step 0 is called when the bucket is complete, in launch order. Step s + 1 is called after the work that
  // step s returned, at the latest before the end of the iteration. Returns null when the buffer holds the
  // result.
  virtual std::shared_ptr<Work> step(const HookBucket& bucket, int step) = 0;

  // The state that the hook keeps between iterations, as bytes for a checkpoint of this rank. load() throws
  // INVALID_ARG for bytes of another kind of hook or of other parameters.
  virtual std::string save() const { return {}; }
  virtual void load(std::span<const std::byte> state, std::span<const HookBucket> buckets);

  // Any thread: ends the waiting for operations of groups that the hook has made itself.
  virtual void abort() noexcept {}
  // Whether the host computes on gradients of a device, so that an iteration cannot be captured in a graph.
  virtual bool needs_host() const noexcept { return false; }
  // Whether all ranks have the same gradients after the latest iteration.
  virtual bool makes_equal() const noexcept { return true; }
};

}  // namespace dsc
