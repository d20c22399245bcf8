// The norm of all gradients, from the shards of all ranks.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "reducer/clip.hpp"
#include "sharded/sharded.hpp"

namespace dsc {
namespace {

constexpr double kEpsilon = 1e-6;  // added to the norm, as PyTorch's clip_grad_norm_ does

}  // namespace

std::vector<GradientShard> Sharded::grad_shards() const {
  std::vector<GradientShard> shards;
  for (size_t b = 0; b < plan_.layout.buckets.size(); ++b) shards.push_back(gradients_->shard(b));
  return shards;
}

double Sharded::clip(double max_norm, double scale, void* stream) {
  ShardMemory& memory = gradients_->memory();
  memory.check_stream(stream);
  groups_.check_alive();
  check_max_norm(max_norm);
  check_scale(scale);
  if (!gradients_->has_sums())
    fail(DSC_ERR_STATE, "no finished iteration has left gradients, call finish first");
  const std::vector<GradientShard> shards = grad_shards();
  double sum = 0;
  Call call;
  call.kind = OpKind::kAllReduce;
  call.dtype = DSC_DTYPE_F64;
  call.op = DSC_OP_SUM;
  call.send = call.recv = &sum;
  call.count = 1;
  const double numbers[] = {max_norm, scale};
  call.tag = fnv1a({reinterpret_cast<const char*>(numbers), sizeof numbers});
  std::snprintf(call.note, sizeof call.note, "clip to %.4g, scale %.4g", max_norm, scale);
  groups_.run(groups_.shards(), [&] {
    memory.follow(stream);
    sum = memory.square_sum(shards);
    groups_.shards().run(call);
  });
  const double norm = std::sqrt(sum) * std::fabs(scale);
  // A norm that is not finite leaves the gradients alone; all ranks have the same norm, so all of them do.
  if (!std::isfinite(norm)) return norm;
  const double factor = scale * std::min(1.0, max_norm / (norm + kEpsilon));
  if (factor == 1) return norm;
  for (const GradientShard& shard : shards) memory.multiply(shard, factor);
  memory.lead(stream);
  return norm;
}

}  // namespace dsc
