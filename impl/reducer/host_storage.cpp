// Gradients in host memory. The calling thread moves them at once.
#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "comm/memory.hpp"
#include "comm/wait_ignoring_failure.hpp"
#include "device/context.hpp"
#include "dtype/reduce.hpp"
#include "reducer/storage.hpp"

namespace dsc {
namespace {

class HostStorage final : public GradientStorage {
 public:
  HostStorage(Comm& group, const StorageOptions& options)
      : group_(group),
        scales_(options.average == DSC_AVERAGE_PYTORCH),
        arena_(static_cast<std::byte*>(
            group.allocate_memory(std::max(options.bytes, BucketLayout::kAlignment)))) {}

  std::byte* arena() const noexcept override { return arena_.get(); }

  void check(const void* gradient, const void* stream, const std::string& who) const override {
    if (stream)
      fail(DSC_ERR_UNSUPPORTED, "stream is not NULL, expected NULL: the parameters are in host memory");
    if (!gradient || !group_.device_context()) return;
    const int number = device_of_memory(*group_.device_context()->device, gradient);
    if (number != kHostMemory)
      fail(DSC_ERR_INVALID_ARG,
           "%s: gradient is memory of device %d, expected host memory as the parameters'", who.c_str(),
           number);
  }

  void begin(void*) override {}

  void accumulate(const GradientSlot& slot, const void* gradient, bool accumulated, void*) override {
    if (accumulated) {
      add(slot.dtype, slot.view, gradient, slot.count);
    } else if (slot.bytes > 0) {
      std::memcpy(slot.view, gradient, slot.bytes);
    }
  }

  // PyTorch multiplies a gradient that it copies and divides one that it does not.
  void take(const GradientSlot& slot, const void* gradient, bool accumulated, void*) override {
    if (!gradient) {
      if (scales_) divide(slot.dtype, slot.view, slot.view, slot.count, group_.size());
    } else if (accumulated) {
      add(slot.dtype, slot.view, gradient, slot.count);
      if (scales_) multiply(slot.dtype, slot.view, slot.view, slot.count, 1.0 / group_.size());
    } else if (scales_) {
      multiply(slot.dtype, slot.view, gradient, slot.count, 1.0 / group_.size());
    } else {
      std::memcpy(slot.view, gradient, slot.bytes);
    }
  }

  void take_zeros(const GradientSlot& slot) override { std::memset(slot.view, 0, slot.bytes); }

  std::shared_ptr<Work> start(size_t, const Call& call) override {
    Call checked = call;
    checked.nonfinite = group_.nonfinite()->check_for(call.dtype);
    return group_.start(checked);
  }

  bool goes_on_alone() const noexcept override { return false; }

  Failure outcome(Work& work) override {
    dsc::wait_ignoring_failure(work, Deadline::never());  // every operation has its own deadline
    return work.failure();
  }

  std::optional<BadBucket> find_nonfinite() override { return std::nullopt; }

  void begin_delivery(void*) override {}

  void deliver(Work&, std::span<const Delivery> deliveries) override {
    for (const auto& [slot, to] : deliveries)
      if (slot->bytes > 0) std::memcpy(to, slot->view, slot->bytes);
  }

  void end(void*) override {}

  bool wait_idle(Deadline) noexcept override { return true; }

  void keep() noexcept override { static_cast<void>(arena_.release()); }

 private:
  struct ReleaseMemory {
    void operator()(std::byte* memory) const { release_memory(memory); }
  };

  Comm& group_;
  const bool scales_;
  std::unique_ptr<std::byte, ReleaseMemory> arena_;
};

}  // namespace

std::unique_ptr<GradientStorage> make_host_storage(Comm& group, const StorageOptions& options) {
  return std::make_unique<HostStorage>(group, options);
}

}  // namespace dsc
