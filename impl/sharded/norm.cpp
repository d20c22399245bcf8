// The norm of all gradients, from the shards of all ranks.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "dtype/dtype.hpp"
#include "dtype/reduce.hpp"
#include "reducer/clip.hpp"
#include "sharded/sharded.hpp"

namespace dsc {
namespace {

constexpr size_t kSquaredElements = 4096;  // at a time
constexpr size_t kLanes = 8;
constexpr double kEpsilon = 1e-6;  // added to the norm, as PyTorch's clip_grad_norm_ does

// Sums into several lanes, which a processor adds at once; their number is fixed, and so are the bits.
template <typename T>
double square_sum(const std::byte* data, size_t count) {
  const auto* values = reinterpret_cast<const T*>(data);
  std::array<double, kLanes> sums{};
  for (size_t i = 0; i < count; ++i)
    sums[i % kLanes] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  double sum = 0;
  for (const double lane : sums) sum += lane;
  return sum;
}

double square_sum(const GradientShard& shard) {
  if (shard.dtype == DSC_DTYPE_F64) return square_sum<double>(shard.data, shard.count);
  if (shard.dtype == DSC_DTYPE_F32) return square_sum<float>(shard.data, shard.count);
  std::array<std::byte, kSquaredElements * sizeof(float)> converted;
  double sum = 0;
  for (size_t done = 0; done < shard.count; done += kSquaredElements) {
    const size_t count = std::min(kSquaredElements, shard.count - done);
    cast(DSC_DTYPE_F32, converted.data(), shard.dtype, shard.data + done * dtype_bytes(shard.dtype), count);
    sum += square_sum<float>(converted.data(), count);
  }
  return sum;
}

}  // namespace

// Adds the buckets in their order, so that the sum is the same at every call.
double Sharded::local_square_sum() const {
  double sum = 0;
  for (size_t b = 0; b < plan_.layout.buckets.size(); ++b) sum += square_sum(gradients_->shard(b));
  return sum;
}

double Sharded::clip(double max_norm, double scale) {
  groups_.check_alive();
  check_max_norm(max_norm);
  check_scale(scale);
  if (!gradients_->has_sums())
    fail(DSC_ERR_STATE, "no finished iteration has left gradients, call finish first");
  double sum = local_square_sum();
  Call call;
  call.kind = OpKind::kAllReduce;
  call.dtype = DSC_DTYPE_F64;
  call.op = DSC_OP_SUM;
  call.send = call.recv = &sum;
  call.count = 1;
  const double numbers[] = {max_norm, scale};
  call.tag = fnv1a({reinterpret_cast<const char*>(numbers), sizeof numbers});
  std::snprintf(call.note, sizeof call.note, "clip to %.4g, scale %.4g", max_norm, scale);
  groups_.run(groups_.shards(), [&] { groups_.shards().run(call); });
  const double norm = std::sqrt(sum) * std::fabs(scale);
  // A norm that is not finite leaves the gradients alone; all ranks have the same norm, so all of them do.
  if (!std::isfinite(norm)) return norm;
  const double factor = scale * std::min(1.0, max_norm / (norm + kEpsilon));
  if (factor == 1) return norm;
  for (size_t b = 0; b < plan_.layout.buckets.size(); ++b) {
    const GradientShard shard = gradients_->shard(b);
    multiply(shard.dtype, shard.data, shard.data, shard.count, factor);
  }
  return norm;
}

}  // namespace dsc
