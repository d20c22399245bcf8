#include "dscctl/trace/measures.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <numeric>

namespace dscctl::trace {
namespace {

constexpr double kTrimmed = 0.1;         // share of the values, at each end
constexpr double kGbpsPerByteMs = 8e-6;  // converts bytes per millisecond to Gbit/s

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

Bandwidth bandwidth(std::string_view operation, int64_t bytes, double duration_ms, int group_size) {
  if (!(duration_ms > 0)) return {};
  const double rate = static_cast<double>(bytes) / duration_ms;
  const double n = group_size;
  Bandwidth found{rate, rate};
  if (is_one_of(operation, {"all_to_all", "all_to_all_v", "all_to_all_single"})) {
    found.bus_gbps = rate * ((n - 1) / n);
  } else if (is_one_of(operation, {"all_gather", "all_gather_v", "all_gather_into_tensor", "reduce_scatter",
                                   "reduce_scatter_v", "reduce_scatter_tensor"})) {
    found.algorithm_gbps = rate * n;
    found.bus_gbps = rate * n * ((n - 1) / n);
  } else if (is_one_of(operation, {"all_reduce", "all_reduce_coalesced", "inference_all_reduce"})) {
    found.algorithm_gbps = rate * 2;
    found.bus_gbps = rate * (2 * (n - 1) / n);
  }
  return {found.algorithm_gbps * kGbpsPerByteMs, found.bus_gbps * kGbpsPerByteMs};
}

std::string size_text(int64_t bytes) {
  constexpr std::array kUnits = {"B", "KB", "MB", "GB", "TB", "PB", "EB"};
  if (bytes <= 0) return "0B";
  size_t unit = 0;
  double unit_bytes = 1;
  while (unit + 1 < kUnits.size() && static_cast<double>(bytes) >= unit_bytes * 1024) {
    unit_bytes *= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", static_cast<double>(bytes) / unit_bytes);
  std::string number = text;
  if (number.back() == '0') number.pop_back();  // "1.50" becomes 1.5, and "1.00" becomes 1.0
  return number + " " + kUnits[unit];
}

double trimmed_mean(std::vector<double> values) {
  if (values.empty()) return 0;
  // Rounds halves to even, as Python's round() does.
  const auto cut = static_cast<std::ptrdiff_t>(std::nearbyint(kTrimmed * static_cast<double>(values.size())));
  std::sort(values.begin(), values.end());
  const auto kept = static_cast<std::ptrdiff_t>(values.size()) - 2 * cut;
  return std::accumulate(values.begin() + cut, values.end() - cut, 0.0) / static_cast<double>(kept);
}

}  // namespace dscctl::trace
