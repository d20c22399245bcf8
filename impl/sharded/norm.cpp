// Computes the norm of all gradients from the shards of all ranks, and clips the gradients.
#include <cmath>

#include "base/error.hpp"
#include "gradients/clip.hpp"
#include "sharded/sharded.hpp"

namespace dsc {

std::vector<Elements> Sharded::grad_shards() const {
  std::vector<Elements> shards;
  for (size_t b = 0; b < plan_.layout.buckets.size(); ++b) shards.push_back(gradients_->shard(b));
  return shards;
}

double Sharded::clip(double max_norm, double scale, void* stream) {
  ShardMemory& memory = gradients_->memory();
  const ClipLimit limit{max_norm, scale};
  memory.check_stream(stream);
  groups_.check_alive();
  check_clip(limit);
  if (!gradients_->has_sums())
    fail(DSC_ERR_STATE, "there are no gradients of a finished iteration; call dsc_sharded_finish() first");
  const std::vector<Elements> shards = grad_shards();
  double sum = 0;
  groups_.run(groups_.shards(), [&] {
    memory.follow(stream);
    sum = combine_norms(groups_.shards(), memory.square_sum(shards), DSC_NORM_TWO, limit);
  });
  const double norm = std::sqrt(sum) * std::fabs(scale);
  const double factor = clip_factor(norm, limit);
  if (factor == 1) return norm;
  for (const Elements& shard : shards) memory.scale(shard, factor);
  memory.lead(stream);
  return norm;
}

}  // namespace dsc
