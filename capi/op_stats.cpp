#include "op_stats.hpp"

#include <cstdio>

#include "give.hpp"

namespace dsc {
namespace {

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

dsc_result_t write_op_stats(const std::vector<OpStats>& all, dsc_op_stats_t* stats, size_t capacity,
                            size_t* count) {
  return give_structs("stats", all, stats, capacity, count, convert);
}

}  // namespace dsc
