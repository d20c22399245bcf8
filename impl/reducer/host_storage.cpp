// Gradients in host memory. The calling thread moves them at once.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.hpp"
#include "comm/memory.hpp"
#include "comm/wait_ignoring_failure.hpp"
#include "device/context.hpp"
#include "dtype/reduce.hpp"
#include "reducer/storage.hpp"

namespace dsc {
namespace {

constexpr size_t kChunk = 4096;  // elements that are converted at a time, in a buffer on the stack
constexpr size_t kRunningSums = 8;

// Adds an array of another type.
void add_converted(const GradientSlot& slot, const void* gradient) {
  alignas(64) std::byte chunk[kChunk * sizeof(float)];
  const auto* from = static_cast<const std::byte*>(gradient);
  for (size_t at = 0; at < slot.count; at += kChunk) {
    const size_t n = std::min(kChunk, slot.count - at);
    cast(slot.dtype, chunk, slot.gradient_dtype, from + at * dtype_bytes(slot.gradient_dtype), n);
    add(slot.dtype, slot.view + at * dtype_bytes(slot.dtype), chunk, n);
  }
}

template <typename T>
void add_values(GradientNorm& norm, const T* values, size_t count) {
  double sums[kRunningSums] = {};
  for (size_t i = 0; i < count; ++i) {
    const auto value = static_cast<double>(values[i]);
    sums[i % kRunningSums] += value * value;
    // A comparison with a NaN is false: a NaN is taken as it is, and stays.
    if (!(std::fabs(value) <= norm.most) && !std::isnan(norm.most)) norm.most = std::fabs(value);
  }
  for (const double sum : sums) norm.squares += sum;
}

void add_part(GradientNorm& norm, const GradientPart& part) {
  const int32_t dtype = part.slot->dtype;
  const std::byte* values = part.slot->view + part.at * dtype_bytes(dtype);
  if (dtype == DSC_DTYPE_F64) return add_values(norm, reinterpret_cast<const double*>(values), part.count);
  if (dtype == DSC_DTYPE_F32) return add_values(norm, reinterpret_cast<const float*>(values), part.count);
  float wide[kChunk];
  for (size_t at = 0; at < part.count; at += kChunk) {
    const size_t n = std::min(kChunk, part.count - at);
    cast(DSC_DTYPE_F32, wide, dtype, values + at * dtype_bytes(dtype), n);
    add_values(norm, wide, n);
  }
}

class HostStorage final : public GradientStorage {
 public:
  HostStorage(Comm& group, const StorageOptions& options)
      : group_(group),
        is_pytorch_(options.average == DSC_AVERAGE_PYTORCH),
        divisor_(group.size()),
        arena_(static_cast<std::byte*>(
            group.allocate_memory(std::max(options.bytes, BucketLayout::kAlignment)))) {}

  std::byte* arena() const noexcept override { return arena_.get(); }

  void check(const void* gradient, const void* stream, const std::string& who) const override {
    if (stream)
      fail(DSC_ERR_UNSUPPORTED, "stream is not NULL, expected NULL: the parameters are in host memory");
    expect_gradient_on(group_, -1, gradient, who);
  }

  void* stream() const noexcept override { return nullptr; }

  void begin(void*) override {}

  void set_divisor(int divisor) noexcept override { divisor_ = divisor; }

  void accumulate(const GradientSlot& slot, const void* gradient, bool accumulated, void*) override {
    if (slot.count == 0) return;
    if (!accumulated) {
      cast(slot.dtype, slot.view, slot.gradient_dtype, gradient, slot.count);
    } else if (slot.dtype == slot.gradient_dtype) {
      add(slot.dtype, slot.view, gradient, slot.count);
    } else {
      add_converted(slot, gradient);
    }
  }

  // PyTorch multiplies a gradient that it copies and divides one that it does not.
  void take(const GradientSlot& slot, const void* gradient, bool accumulated, void* stream) override {
    const bool scales = is_pytorch_ && divisor_ != 1;
    if (!gradient) {
      if (scales) divide(slot.dtype, slot.view, slot.view, slot.count, divisor_);
    } else if (scales && !accumulated && slot.dtype == slot.gradient_dtype) {
      multiply(slot.dtype, slot.view, gradient, slot.count, 1.0 / divisor_);
    } else {
      accumulate(slot, gradient, accumulated, stream);
      if (scales) multiply(slot.dtype, slot.view, slot.view, slot.count, 1.0 / divisor_);
    }
  }

  void take_zeros(const GradientSlot& slot) override { std::memset(slot.view, 0, slot.bytes); }

  void follow(const GradientSlot&, void*) override {}

  void gather(size_t) override {}

  std::shared_ptr<Work> start(size_t, const Call& call) override {
    Call checked = call;
    checked.nonfinite = group_.nonfinite()->check_for(call.dtype);
    return group_.start(checked);
  }

  Failure outcome(Work& work) override {
    dsc::wait_ignoring_failure(work, Deadline::never());  // every operation has its own deadline
    return work.failure();
  }

  std::optional<BadBucket> find_nonfinite() override { return std::nullopt; }

  void begin_delivery(void*) override {}

  void deliver(Work*, std::span<const Delivery> deliveries) override {
    for (const auto& [slot, to] : deliveries)
      cast(slot->gradient_dtype, to, slot->dtype, slot->view, slot->count);
  }

  void end(void*) override {}

  GradientNorm norm(std::span<const GradientPart> parts) override {
    GradientNorm norm;
    for (const GradientPart& part : parts) add_part(norm, part);
    return norm;
  }

  void scale(std::span<const GradientSlot> slots, std::span<void* const> copies, double factor) override {
    for (size_t i = 0; i < slots.size(); ++i) {
      const GradientSlot& slot = slots[i];
      multiply(slot.dtype, slot.view, slot.view, slot.count, factor);
      if (copies[i]) cast(slot.gradient_dtype, copies[i], slot.dtype, slot.view, slot.count);
    }
  }

  bool wait_idle(Deadline) noexcept override { return true; }

  void keep() noexcept override { static_cast<void>(arena_.release()); }

 private:
  struct ReleaseMemory {
    void operator()(std::byte* memory) const { release_memory(memory); }
  };

  Comm& group_;
  const bool is_pytorch_;
  int divisor_;
  std::unique_ptr<std::byte, ReleaseMemory> arena_;
};

}  // namespace

std::unique_ptr<GradientStorage> make_host_storage(Comm& group, const StorageOptions& options) {
  return std::make_unique<HostStorage>(group, options);
}

}  // namespace dsc
