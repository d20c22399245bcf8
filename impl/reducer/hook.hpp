// A communication hook replaces the reducer's all-reduce of a bucket, for example to compress it.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "comm/tensor.hpp"
#include "comm/work.hpp"
#include "memory/space.hpp"
#include "reducer/gradient_slot.hpp"

namespace dsc {

// A bucket as a hook sees it. The gradients are not divided yet, because the hook computes the mean.
struct HookBucket {
  size_t index;
  bool is_last;
  int divisor;  // number of ranks that take part; the mean is the sum divided by it
  int32_t dtype;
  size_t count;
  std::byte* buffer;
  // A stream of the device, ordered after the gradients; null in host memory.
  void* stream;
  std::span<const size_t> params;       // indices of the parameters, in the order of the buffer
  std::span<const Tensor> tensors;      // descriptions of all parameters
  std::span<const GradientSlot> slots;  // slots of all parameters
  Comm& group;
  // The memory space of the buffer. It is the host, unless the hook supports all kinds of memory.
  Space& space;

  Elements elements() const noexcept { return {buffer, count, dtype}; }
};

// Only one thread at a time calls a hook. All ranks call it for the same buckets and steps in the same order,
// so the hook may use collective operations of the group.
class BucketHook {
 public:
  virtual ~BucketHook() = default;

  virtual const std::string& name() const noexcept = 0;

  // Called before the first bucket, and again after the buckets were rebuilt: any state for a bucket is then
  // invalid. Throws UNSUPPORTED for gradients that the hook cannot reduce.
  virtual void prepare(std::span<const Tensor> params) = 0;

  // Step 0 is called in launch order when the bucket is complete. Step s + 1 is called when the work that
  // step s returned has ended, before the end of the iteration. A step returns null when the buffer holds the
  // result.
  virtual std::shared_ptr<Work> step(const HookBucket& bucket, int step) = 0;

  // Returns the state that the hook keeps between iterations, as bytes for a checkpoint of this rank. load()
  // restores it, and throws INVALID_ARG if the bytes are from another kind of hook or for other parameters.
  virtual std::string save() const { return {}; }
  virtual void load(std::span<const std::byte> state, std::span<const HookBucket> buckets);

  // May be called from any thread. Interrupts operations of communicators that the hook created itself.
  virtual void abort() noexcept {}
  // Returns true if the hook computes device gradients on the host. Such iterations cannot be captured in a
  // graph.
  virtual bool needs_host() const noexcept { return false; }
  // Returns true if all ranks have the same gradients after the latest iteration.
  virtual bool makes_equal() const noexcept { return true; }
};

}  // namespace dsc
