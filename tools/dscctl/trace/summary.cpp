#include "dscctl/trace/summary.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "dscctl/trace/measures.hpp"
#include "dscctl/trace/text.hpp"

namespace dscctl::trace {
namespace {

struct Latencies {
  std::vector<double> own_ms, straggler_ms;
};

using SummaryKey = std::tuple<std::string, int64_t, size_t>;

int64_t dtype_bytes(std::string_view dtype) {
  constexpr std::array<std::pair<std::string_view, int64_t>, 13> kBytes = {{{"i8", 1},
                                                                            {"u8", 1},
                                                                            {"i32", 4},
                                                                            {"u32", 4},
                                                                            {"i64", 8},
                                                                            {"u64", 8},
                                                                            {"f16", 2},
                                                                            {"f32", 4},
                                                                            {"f64", 8},
                                                                            {"bf16", 2},
                                                                            {"f8e4m3", 1},
                                                                            {"f8e5m2", 1},
                                                                            {"bool", 1}}};
  const auto found =
      std::find_if(kBytes.begin(), kBytes.end(), [&](const auto& b) { return b.first == dtype; });
  return found == kBytes.end() ? 0 : found->second;
}

// Returns the bytes of one rank's part. For all_gather and reduce_scatter, bandwidth() multiplies them by the
// group's size.
int64_t part_bytes(const Entry& entry) {
  const std::optional<int64_t> elements = part_elements(entry);
  const int64_t element_bytes = dtype_bytes(entry.dtype);
  return elements && element_bytes > 0 ? *elements * element_bytes : entry.bytes;
}

// Returns nullopt for operations on devices, because only the device knows how long they took.
std::optional<double> latency_ms(const Entry& entry) {
  if (entry.on_device || !entry.started || !entry.completed || entry.failed()) return std::nullopt;
  return static_cast<double>(*entry.completed - *entry.started) / 1e6;
}

// Returns the shortest latency among the ranks. For a message it returns `own`, because the two ends do
// different work.
double least_ms(const Operation& operation, double own) {
  if (operation.is_message) return own;
  double least = own;
  for (const Participant& participant : operation.participants)
    if (participant.entry != nullptr) least = std::min(least, latency_ms(*participant.entry).value_or(least));
  return least;
}

SummaryRow row_of(const SummaryKey& key, const Latencies& latencies, int group_size) {
  const auto& [operation, bytes, group] = key;
  SummaryRow row{operation, bytes, group, static_cast<int64_t>(latencies.own_ms.size())};
  std::vector<double> algorithm, bus;
  for (const double ms : latencies.own_ms) {
    const Bandwidth found = bandwidth(operation, bytes, ms, group_size);
    algorithm.push_back(found.algorithm_gbps);
    bus.push_back(found.bus_gbps);
  }
  row.total_ms = std::accumulate(latencies.own_ms.begin(), latencies.own_ms.end(), 0.0);
  row.average_ms = trimmed_mean(latencies.own_ms);
  row.algorithm_gbps = trimmed_mean(algorithm);
  row.bus_gbps = trimmed_mean(bus);
  row.straggler_total_ms = std::accumulate(latencies.straggler_ms.begin(), latencies.straggler_ms.end(), 0.0);
  row.straggler_average_ms = trimmed_mean(latencies.straggler_ms);
  return row;
}

std::string decimal(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

// Operations that the library itself runs in every world before those of the program.
bool is_starting_up(const Entry& entry) { return entry.name == "bind_device" || entry.name == "ready"; }

int size_of(const Trace& trace, size_t group) { return static_cast<int>(trace.groups[group].ranks.size()); }

}  // namespace

std::vector<SummaryRow> summarize(const Trace& trace, const std::vector<Operation>& operations, int rank) {
  std::map<SummaryKey, Latencies> by_key;
  for (const Operation& operation : operations) {
    for (const Participant& participant : operation.participants) {
      if (participant.rank != rank || participant.entry == nullptr) continue;
      const Entry& entry = *participant.entry;
      if (is_starting_up(entry)) continue;
      const std::optional<double> own = latency_ms(entry);
      if (!own) continue;
      Latencies& latencies = by_key[{entry.name, part_bytes(entry), operation.group}];
      latencies.own_ms.push_back(*own);
      latencies.straggler_ms.push_back(*own - least_ms(operation, *own));
    }
  }
  std::vector<SummaryRow> rows;
  for (const auto& [key, latencies] : by_key)
    rows.push_back(row_of(key, latencies, size_of(trace, std::get<2>(key))));
  return rows;
}

std::string summary_text(const Trace& trace, const std::vector<SummaryRow>& rows, int rank) {
  std::vector<std::vector<std::string>> table = {{"operation", "size", "group", "ranks", "count", "total ms",
                                                  "avg ms", "algbw Gbit/s", "busbw Gbit/s", "straggler ms",
                                                  "straggler avg ms"}};
  for (const SummaryRow& row : rows)
    table.push_back({row.operation, size_text(row.bytes), trace.groups[row.group].name,
                     std::to_string(size_of(trace, row.group)), std::to_string(row.count),
                     decimal(row.total_ms, 3), decimal(row.average_ms, 4), decimal(row.algorithm_gbps, 2),
                     decimal(row.bus_gbps, 2), decimal(row.straggler_total_ms, 3),
                     decimal(row.straggler_average_ms, 4)});
  return "rank " + std::to_string(rank) + " of " + std::to_string(trace.world_size) +
         "; 1 KB is 1,024 B; averages leave out the highest and the lowest tenth\n" +
         table_text(table, {0, 2});
}

Json summary_json(const Trace& trace, const std::vector<SummaryRow>& rows, int rank) {
  Json list = Json::array();
  for (const SummaryRow& row : rows)
    list.push_back({{"operation", row.operation},
                    {"bytes", row.bytes},
                    {"group", trace.groups[row.group].name},
                    {"group_size", size_of(trace, row.group)},
                    {"count", row.count},
                    {"total_ms", row.total_ms},
                    {"average_ms", row.average_ms},
                    {"algorithm_gbps", row.algorithm_gbps},
                    {"bus_gbps", row.bus_gbps},
                    {"straggler_total_ms", row.straggler_total_ms},
                    {"straggler_average_ms", row.straggler_average_ms}});
  return {{"rank", rank}, {"world_size", trace.world_size}, {"rows", list}};
}

}  // namespace dscctl::trace
