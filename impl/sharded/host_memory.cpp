// Full buffers and shards in memory of the host.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.hpp"
#include "comm/tensor.hpp"
#include "comm/wait_ignoring_failure.hpp"
#include "device/context.hpp"
#include "dtype/dtype.hpp"
#include "dtype/reduce.hpp"
#include "sharded/put_gradient.hpp"
#include "sharded/shard_memory.hpp"
#include "sharded/unit_memory.hpp"

namespace dsc {
namespace {

constexpr size_t kSquaredElements = 4096;  // at a time
constexpr size_t kLanes = 8;

// Sums into several lanes, which a processor adds at once; their number is fixed, and so are the bits.
template <typename T>
double square_sum_of(const std::byte* data, size_t count) {
  const auto* values = reinterpret_cast<const T*>(data);
  std::array<double, kLanes> sums{};
  for (size_t i = 0; i < count; ++i)
    sums[i % kLanes] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  double sum = 0;
  for (const double lane : sums) sum += lane;
  return sum;
}

double square_sum_of(const GradientShard& shard) {
  if (shard.dtype == DSC_DTYPE_F64) return square_sum_of<double>(shard.data, shard.count);
  if (shard.dtype == DSC_DTYPE_F32) return square_sum_of<float>(shard.data, shard.count);
  std::array<std::byte, kSquaredElements * sizeof(float)> converted;
  double sum = 0;
  for (size_t done = 0; done < shard.count; done += kSquaredElements) {
    const size_t count = std::min(kSquaredElements, shard.count - done);
    cast(DSC_DTYPE_F32, converted.data(), shard.dtype, shard.data + done * dtype_bytes(shard.dtype), count);
    sum += square_sum_of<float>(converted.data(), count);
  }
  return sum;
}

class HostMemory final : public ShardMemory {
 public:
  HostMemory(Comm& group, const ShardMemoryOptions& options)
      : group_(group),
        units_(options.keeps_full
                   ? UnitMemory::kept(group, options.full)
                   : UnitMemory::pooled(group, options.full, options.pool_bytes, options.faults)),
        shards_(options.shard_bytes > 0 ? std::make_unique<std::byte[]>(options.shard_bytes) : nullptr) {}

  std::byte* views() const noexcept override { return units_.views(); }
  std::byte* buffer(size_t unit) const noexcept override { return units_.buffer(unit); }
  bool is_dirty(size_t unit) const noexcept override { return units_.is_pooled(unit); }
  std::byte* shards() const noexcept override { return shards_.get(); }
  size_t held() const noexcept override { return units_.held(); }
  size_t growth(size_t unit) const override { return units_.growth(unit); }
  void open(size_t unit, bool may_pool) override { units_.open(unit, may_pool); }
  void close(size_t unit) override { units_.close(unit); }
  void keep() noexcept override {
    units_.keep();
    static_cast<void>(shards_.release());
  }
  std::shared_ptr<std::byte> scratch(size_t bytes) override {
    return {new std::byte[bytes], std::default_delete<std::byte[]>()};
  }

  bool in_stream_order() const noexcept override { return false; }
  void* stream(Queue) const noexcept override { return nullptr; }
  void check_stream(void* stream) const override {
    if (stream)
      fail(DSC_ERR_UNSUPPORTED, "stream is not NULL, expected NULL: the parameters are in host memory");
  }
  void check_gradient(const void* gradient, const std::string& who) const override {
    expect_gradient_on(group_, -1, gradient, who);
  }
  void follow(void*) override {}
  void lead(void*) override {}
  Failure await(Work& work, Queue) override {
    wait_ignoring_failure(work, Deadline::never());  // every operation has its own deadline
    return work.failure();
  }
  void wait() override {}
  bool wait_idle(Deadline) noexcept override { return true; }

  void put(const ElementCopy& copy) override {
    put_gradient(copy.to, copy.to_dtype, copy.from, copy.from_dtype, copy.count, copy.adds);
  }
  void zero(std::byte* at, size_t bytes) override { std::memset(at, 0, bytes); }
  void multiply(const GradientShard& elements, double factor) override {
    dsc::multiply(elements.dtype, elements.data, elements.data, elements.count, factor);
  }
  void divide(const GradientShard& elements, int divisor) override {
    dsc::divide(elements.dtype, elements.data, elements.data, elements.count, divisor);
  }
  double square_sum(std::span<const GradientShard> shards) override {
    double sum = 0;
    for (const GradientShard& shard : shards) sum += square_sum_of(shard);
    return sum;
  }

 private:
  Comm& group_;
  UnitMemory units_;
  std::unique_ptr<std::byte[]> shards_;
};

}  // namespace

size_t unit_alignment(bool on_device, bool keeps_full) noexcept {
  constexpr size_t kDeviceAlignment = 256;  // as of the driver's own allocations
  return on_device ? kDeviceAlignment : UnitMemory::alignment(keeps_full);
}

std::unique_ptr<ShardMemory> make_host_memory(Comm& group, const ShardMemoryOptions& options) {
  return std::make_unique<HostMemory>(group, options);
}

}  // namespace dsc
