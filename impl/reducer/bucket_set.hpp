// One arrangement of the gradients in buckets: the layout, the memory, and the operation of each bucket. A
// reducer that rebuilds its buckets replaces the whole object.
#pragma once

#include <memory>
#include <vector>

#include "comm/comm.hpp"
#include "gradients/param_list.hpp"
#include "reducer/bucket_layout.hpp"
#include "reducer/storage.hpp"

namespace dsc {

class BucketSet {
 public:
  // Collective. Allocates the buckets.
  BucketSet(Comm& group, const ParamList& params, BucketLayout chosen, int32_t average);
  BucketSet(const BucketSet&) = delete;
  BucketSet& operator=(const BucketSet&) = delete;

  size_t size() const noexcept { return layout.buckets.size(); }
  std::byte* bucket(size_t b) const { return storage->arena() + layout.buckets[b].offset; }
  size_t bucket_bytes(size_t b) const;

  // Sets the divisor for means from the next iteration on. It is the number of ranks that take part.
  void set_divisor(int divisor);

  const BucketLayout layout;
  const int32_t average;
  const std::unique_ptr<GradientStorage> storage;
  std::vector<GradientSlot> slots;  // one slot per parameter
  std::vector<Call> calls;          // one call per bucket
};

}  // namespace dsc
