// The norm of all gradients, from the shards of all ranks.
#include <cmath>

#include "base/error.hpp"
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

double Sharded::clip(double max_norm, void* stream) {
  ShardMemory& memory = gradients_->memory();
  memory.check_stream(stream);
  groups_.check_alive();
  if (!(max_norm >= 0)) fail(DSC_ERR_INVALID_ARG, "max_norm is %g, expected 0 or more", max_norm);
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
  groups_.run(groups_.shards(), [&] {
    memory.follow(stream);
    sum = memory.square_sum(shards);
    groups_.shards().run(call);
  });
  const double norm = std::sqrt(sum);
  // A norm that is not finite leaves the gradients alone; all ranks have the same norm, so all of them do.
  if (!std::isfinite(norm)) return norm;
  const double scale = max_norm / (norm + kEpsilon);
  if (!(scale < 1)) return norm;
  for (const GradientShard& shard : shards) memory.multiply(shard, scale);
  memory.lead(stream);
  return norm;
}

}  // namespace dsc
