// Inline data between hosts that have several ranks. Each rank sends its part to its leader together with its
// call. The leaders exchange the data of their hosts together with the calls. Each leader returns the result
// together with the outcome. An operation therefore takes one round instead of two between hosts, and two
// instead of four on each host.
#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "comm/transfer.hpp"
#include "dtype/dtype.hpp"
#include "dtype/reduce.hpp"
#include "engine_hier/inline_data.hpp"

namespace dsc {
namespace {

// The bytes that each rank contributes to a call. They are computed once per operation: computing the lengths
// again for every rank would take time quadratic in the number of ranks.
class PartSizes {
 public:
  PartSizes(const Call& call, std::vector<size_t> lengths)
      : pattern_(pattern_of(call.kind)),
        root_(call.root),
        lengths_(std::move(lengths)),
        total_(std::accumulate(lengths_.begin(), lengths_.end(), size_t{0})) {}

  size_t of(int rank) const {
    switch (pattern_) {
      case Pattern::kNothing:
        return 0;
      case Pattern::kAllReduce:
      case Pattern::kReduce:
      case Pattern::kGather:
      case Pattern::kAllGather:
        return lengths_[static_cast<size_t>(rank)];
      case Pattern::kBroadcast:
        return rank == root_ ? lengths_[static_cast<size_t>(rank)] : 0;
      case Pattern::kScatter:
        return rank == root_ ? total_ : 0;
      case Pattern::kReduceScatter:
      case Pattern::kAllToAll:
        return total_;
    }
    return 0;
  }

  // Returns the bytes of the packed parts of some ranks; for a reduction, those of their combined result.
  size_t of(std::span<const int32_t> ranks) const {
    if (reduces(pattern_)) return of(0);
    size_t bytes = 0;
    for (const int32_t rank : ranks) bytes += of(rank);
    return bytes;
  }

 private:
  const Pattern pattern_;
  const int32_t root_;
  const std::vector<size_t> lengths_;
  const size_t total_;
};

}  // namespace

bool InlineData::is_small() const {
  return pattern_of(call_.kind) != Pattern::kNothing &&
         PartSizes(call_, lengths()).of(layout_.node_major_order()) <= kSmallBytes;
}

void InlineData::give_part(std::byte* to) const {
  copy_bytes(to, call_.send, PartSizes(call_, lengths()).of(layout_.rank()));
}

// Packs or combines the parts of this host's ranks. All other hosts receive the same block.
TransportBlock InlineData::host_part(std::span<const std::byte* const> parts) {
  const auto& members = layout_.own_members();
  const PartSizes sizes(call_, lengths());
  const size_t bytes = sizes.of(members);
  if (!reduces(pattern_of(call_.kind))) {
    std::byte* const all = scratch(kUp, bytes);
    for (size_t member = 0, at = 0; member < members.size(); ++member) {
      const size_t part = sizes.of(members[member]);
      copy_bytes(all + at, parts[member], part);
      at += part;
    }
    return {all, bytes};
  }
  const size_t count = bytes / dtype_bytes(call_.dtype), wide_bytes = count * dtype_bytes(work_type());
  std::byte* const wide = scratch(kOwn, wide_bytes * parts.size());
  std::vector<const void*> inputs;
  for (size_t member = 0; member < parts.size(); ++member) {
    inputs.push_back(wide + member * wide_bytes);
    convert(wide + member * wide_bytes, work_type(), parts[member], call_.dtype, count);
  }
  void* const sum = scratch(kUp, wide_bytes);
  const int32_t op = call_.op == DSC_OP_AVG ? int32_t{DSC_OP_SUM} : call_.op;
  dsc::reduce({.dtype = work_type(), .op = op, .divisor = 1, .prescale = call_.prescale}, inputs.data(),
              static_cast<int>(inputs.size()), &sum, 1, count);
  return {sum, wide_bytes};
}

// Computes from the data of all hosts the result that take_result() receives.
void InlineData::combine_hosts(std::span<const TransportGroup::Header> headers, std::byte* result) {
  const bool sums = reduces(pattern_of(call_.kind));
  const PartSizes sizes(call_, lengths());
  const size_t widening = sums ? dtype_bytes(work_type()) / dtype_bytes(call_.dtype) : 1;
  std::vector<const std::byte*> from;
  for (int host = 0; host < layout_.hosts(); ++host) {
    const size_t bytes = sizes.of(layout_.members(host)) * widening;
    from.push_back(host == layout_.own_host() ? scratch(kUp, 0)
                                              : expect(headers[static_cast<size_t>(host)], bytes));
  }
  if (!sums) {
    for (int rank = 0; rank < layout_.size(); ++rank) {
      const auto host = static_cast<size_t>(layout_.host_of(rank));
      const size_t bytes = sizes.of(rank);
      copy_bytes(result, from[host], bytes);
      from[host] += bytes;
      result += bytes;
    }
    return;
  }
  const std::vector<const void*> inputs(from.begin(), from.end());
  const size_t count = sizes.of(0) / dtype_bytes(call_.dtype);
  void* const sum = scratch(kDown, count * dtype_bytes(work_type()));
  dsc::reduce(between_hosts(), inputs.data(), static_cast<int>(inputs.size()), &sum, 1, count);
  convert(result, call_.dtype, sum, work_type(), count);
}

void InlineData::take_result(const std::byte* result) {
  const std::vector<size_t> bytes = lengths();
  const auto rank = static_cast<size_t>(layout_.rank());
  const auto start =
      static_cast<size_t>(std::accumulate(bytes.begin(), bytes.begin() + layout_.rank(), size_t{0}));
  const bool is_root = layout_.rank() == call_.root;
  switch (pattern_of(call_.kind)) {
    case Pattern::kNothing:
      return;
    case Pattern::kAllReduce:
    case Pattern::kBroadcast:
      return copy_bytes(call_.recv, result, bytes[rank]);
    case Pattern::kReduce:
      return copy_bytes(call_.recv, result, is_root ? bytes[rank] : 0);
    case Pattern::kReduceScatter:
    case Pattern::kScatter:
      return copy_bytes(call_.recv, result + start, bytes[rank]);
    case Pattern::kGather:
      return copy_bytes(call_.recv, result,
                        is_root ? PartSizes(call_, lengths()).of(layout_.node_major_order()) : 0);
    case Pattern::kAllGather:
      return copy_bytes(call_.recv, result, PartSizes(call_, lengths()).of(layout_.node_major_order()));
    case Pattern::kAllToAll:
      const size_t part = PartSizes(call_, lengths()).of(0);  // equal on all ranks
      for (size_t from = 0; from < bytes.size(); ++from)
        copy_bytes(received(from * bytes[rank]), result + from * part + start, bytes[rank]);
  }
}

}  // namespace dsc
