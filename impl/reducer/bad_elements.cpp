#include "reducer/bad_elements.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/gather.hpp"
#include "dtype/reduce.hpp"

namespace dsc {
namespace {

constexpr uint64_t kFoundTag = 0x62616465;
constexpr char kGradients[] = "the gradients";

}  // namespace

// The bad elements that one rank has found. Ranks exchange this struct.
struct BadElements::Found {
  uint64_t count;
  uint64_t bucket;    // the first bucket with bad elements
  uint64_t index;     // the first bad element of that bucket
  uint64_t sequence;  // sequence number of the bucket's operation
};

BadElements::BadElements(Space& space, Comm& group, size_t buckets)
    : space_(space), group_(group), buckets_(buckets) {}

void BadElements::expect(bool captured) {
  check_ = group_.nonfinite()->check();
  if (looks() && captured)
    fail(DSC_ERR_STATE, "gradients that are checked for NaNs and infinities cannot be captured in a graph");
}

void BadElements::begin(void* stream) {
  if (!looks()) return;
  const size_t bytes = buckets_ * space_.norm_bytes();
  if (!norms_) norms_ = space_.take(bytes, stream);
  space_.zero(norms_.get(), bytes, stream);
}

void* BadElements::norm_of(size_t bucket, int32_t dtype) const {
  return looks() && is_floating(dtype) ? norms_.get() + bucket * space_.norm_bytes() : nullptr;
}

// Returns the index of the first bad element in the bucket. A gradient that was computed in its view of the
// bucket was overwritten by the reduced sum, so the sum is searched.
size_t BadElements::first_index(void* stream, const Input& input) const {
  for (const auto& [memory, count, at, dtype] : input.parts) {
    const size_t bytes = count * dtype_bytes(dtype);
    if (bytes == 0) continue;
    const auto copy = std::make_unique_for_overwrite<std::byte[]>(bytes);
    space_.read(copy.get(), memory, bytes, stream, kGradients);
    NonFinite found;
    const void* source = copy.get();
    void* target = copy.get();
    reduce({.dtype = dtype, .op = DSC_OP_SUM}, &source, 1, &target, 1, count, &found);
    if (found.count > 0) return at + found.index;
  }
  return 0;
}

std::optional<BadBucket> BadElements::find(void* stream, const InputOf& input_of) {
  Found mine{};
  std::vector<Norm> norms(buckets_);
  space_.read_norms(norms, norms_.get(), stream, kGradients);
  for (size_t b = buckets_; b-- > 0;) {
    mine.count += norms[b].nonfinite;
    if (norms[b].nonfinite > 0) mine.bucket = b;
  }
  if (mine.count > 0) {
    Input input = input_of(mine.bucket);
    std::ranges::sort(input.parts, {}, &Input::Part::at);
    mine.index = first_index(stream, input);
    mine.sequence = input.sequence;
  }
  const auto all = gather_all(group_, OpKind::kVerify, kFoundTag, mine);
  NonFinite sum;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].count == 0) continue;
    sum.count += all[rank].count;
    if (sum.source < 0 || all[rank].bucket < all[static_cast<size_t>(sum.source)].bucket)
      sum.source = static_cast<int>(rank);
  }
  if (sum.source < 0) return std::nullopt;
  const Found& first = all[static_cast<size_t>(sum.source)];
  sum.index = first.index;
  group_.nonfinite()->add(OpKind::kAllReduce, first.sequence, sum);
  if (check_ != NonFiniteCheck::kFail) return std::nullopt;
  BadBucket result{first.bucket, {}};
  result.failure.code = DSC_ERR_NONFINITE;
  result.failure.ranks = {sum.source};
  result.failure.index = sum.index;
  result.failure.sequence = first.sequence;
  result.failure.operation = op_kind_name(OpKind::kAllReduce);
  result.failure.set_group(group_.id(), group_.name());
  return result;
}

}  // namespace dsc
