#include "op_stats.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/options.hpp"
#include "checks.hpp"

namespace dsc {
namespace {

constexpr size_t kFirstOpStatsSize = 80;
static_assert(sizeof(dsc_op_stats_t) == kFirstOpStatsSize, "no padding, and nothing but appended fields");

dsc_op_stats_t convert(const OpStats& from) {
  dsc_op_stats_t to{};
  to.bytes_class = from.bytes_class;
  to.count = from.count;
  to.bytes = from.bytes;
  to.waiting_ns = from.waiting_ns;
  to.moving_ns = from.moving_ns;
  std::snprintf(to.operation, sizeof to.operation, "%s", from.operation.c_str());
  return to;
}

}  // namespace

// The caller's array may have elements of another release's size: the first one says which.
void write_op_stats(const std::vector<OpStats>& all, dsc_op_stats_t* stats, size_t capacity, size_t* count) {
  require(count, "count");
  if (capacity > 0) {
    const size_t stride = require(stats, "stats").struct_size;
    if (stride < kFirstOpStatsSize)
      fail(DSC_ERR_INVALID_ARG, "stats[0].struct_size is %zu, expected at least %zu", stride,
           kFirstOpStatsSize);
    auto* at = reinterpret_cast<std::byte*>(stats);
    for (size_t i = 0; i < std::min(capacity, all.size()); ++i, at += stride) {
      std::memcpy(at, &stride, sizeof stride);
      write_sized(reinterpret_cast<dsc_op_stats_t*>(at), convert(all[i]), kFirstOpStatsSize, "stats");
    }
  }
  *count = all.size();
}

}  // namespace dsc
