// The values of parameters at creation.
#include <algorithm>

#include "dtype/dtype.hpp"
#include "sharded/sharded.hpp"

namespace dsc {
namespace {

// Number of bytes sent at a time, so that no rank needs memory for a whole unit.
constexpr size_t kPieceBytes = size_t{4} << 20;

// Copies a piece of a bucket, beginning with element `first`: values of parameters, and zeros in the gaps.
void collect_piece(ShardMemory& memory, std::span<const Tensor> params, const ShardLayout& layout,
                   size_t bucket, size_t first, std::span<std::byte> piece) {
  const int32_t dtype = layout.buckets[bucket].dtype;
  const size_t element = dtype_bytes(dtype);
  const size_t end = first + piece.size() / element;
  memory.zero(piece.data(), piece.size());
  for (size_t i = 0; i < params.size(); ++i) {
    const auto [own, start] = layout.locations[i];
    if (own != bucket || !params[i].data) continue;
    const size_t from = std::max(first, start);
    const size_t to = std::min(end, start + params[i].count);
    if (from >= to) continue;
    memory.put({piece.data() + (from - first) * element, dtype,
                static_cast<const std::byte*>(params[i].data) + (from - start) * element, dtype, to - from},
               false);
  }
}

}  // namespace

// Sets the initial values of all shards. If `sync` is set, they are rank 0's values; otherwise each rank
// takes its own.
void Sharded::set_initial_values(std::span<const Tensor> params, bool sync) {
  Comm& all = groups_.all();
  ShardMemory& memory = params_->memory();
  memory.follow(nullptr);  // the default stream, on which the program may have made the parameters
  const auto scratch = memory.scratch(kPieceBytes);
  for (size_t b = 0; b < plan_.layout.buckets.size(); ++b) {
    const ShardBucket& bucket = plan_.layout.buckets[b];
    const size_t element = dtype_bytes(bucket.dtype);
    for (size_t first = 0; first < bucket.size; first += kPieceBytes / element) {
      const size_t count = std::min(bucket.size - first, kPieceBytes / element);
      if (!sync || all.rank() == 0)
        collect_piece(memory, params, plan_.layout, b, first, {scratch.get(), count * element});
      if (sync && all.size() > 1) {
        Call call;
        call.kind = OpKind::kBroadcast;
        call.dtype = bucket.dtype;
        call.root = 0;
        call.send = call.recv = scratch.get();
        call.count = count;
        call.stream = memory.stream();
        call.tag = b + 1;
        groups_.run(all, [&] { all.run(call); });
      }
      params_->set(b, first, count, scratch.get());
    }
  }
  groups_.run(all, [&] { memory.wait(); });
}

}  // namespace dsc
