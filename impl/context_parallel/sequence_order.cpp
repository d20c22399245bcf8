#include "context_parallel/sequence_order.hpp"

namespace dsc {

std::array<Range, 2> SequenceOrder::held_by(int rank) const noexcept {
  const auto at = static_cast<size_t>(rank), all = static_cast<size_t>(ranks);
  if (!is_zigzag) return {split_range(count, all, at), {count, 0}};
  return {split_range(count, 2 * all, at), split_range(count, 2 * all, 2 * all - 1 - at)};
}

// With a zigzag, the first chunk of a lower rank precedes both chunks of this rank, and its second chunk
// follows both. Both chunks of a higher rank are between the chunks of this rank.
CausalWork causal_work(const SequenceOrder& order, int rank, int source) noexcept {
  const auto mine = order.held_by(rank), theirs = order.held_by(source);
  const size_t queries = mine[0].count + mine[1].count, keys = theirs[0].count + theirs[1].count;
  if (source == rank) return {{0, queries}, {0, keys}, true};
  if (source < rank) return {{0, queries}, {0, order.is_zigzag ? theirs[0].count : keys}, false};
  if (order.is_zigzag) return {{mine[0].count, mine[1].count}, {0, keys}, false};
  return {{0, 0}, {0, 0}, false};
}

}  // namespace dsc
