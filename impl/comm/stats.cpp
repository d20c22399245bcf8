#include "comm/stats.hpp"

#include <bit>

namespace dsc {
namespace {

// Unless `shared`, only one thread writes at a time, so a load and a store are enough. An atomic addition
// would cost many times more.
void increase(std::atomic<uint64_t>& total, uint64_t by, bool shared) noexcept {
  constexpr auto relaxed = std::memory_order_relaxed;
  if (shared)
    total.fetch_add(by, relaxed);
  else
    total.store(total.load(relaxed) + by, relaxed);
}

size_t class_of(size_t bytes) noexcept {
  return bytes == 0 ? 0 : static_cast<size_t>(std::bit_width(bytes - 1)) + 1;
}

}  // namespace

void StatsTable::add(OpKind kind, size_t bytes, int64_t waiting_ns, int64_t moving_ns) noexcept {
  if (static_cast<size_t>(kind) >= kKinds) return;
  Cell& cell = rows_[static_cast<size_t>(kind)][class_of(bytes)];
  const bool shared = is_message(kind);  // messages to different peers may end in parallel
  increase(cell.count, 1, shared);
  increase(cell.bytes, bytes, shared);
  increase(cell.waiting_ns, static_cast<uint64_t>(waiting_ns), shared);
  increase(cell.moving_ns, static_cast<uint64_t>(moving_ns), shared);
}

std::vector<OpStats> StatsTable::read() const {
  std::vector<OpStats> all;
  for (size_t kind = 0; kind < kKinds; ++kind)
    for (size_t size = 0; size < kClasses; ++size) {
      const Cell& cell = rows_[kind][size];
      if (cell.count.load() == 0) continue;
      OpStats stats;
      stats.operation = op_kind_name(static_cast<OpKind>(kind));
      stats.bytes_class = size == 0 ? 0 : uint64_t{1} << (size - 1);
      stats.count = cell.count.load();
      stats.bytes = cell.bytes.load();
      stats.waiting_ns = cell.waiting_ns.load();
      stats.moving_ns = cell.moving_ns.load();
      all.push_back(std::move(stats));
    }
  return all;
}

}  // namespace dsc
