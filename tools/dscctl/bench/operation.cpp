#include "dscctl/bench/operation.hpp"

#include <algorithm>
#include <stdexcept>

#include "common/suggest.hpp"
#include "common/units.hpp"

namespace dscctl::bench {
namespace {

constexpr int32_t kF32 = DSC_DTYPE_F32;
constexpr int32_t kRoot = 0;
constexpr double kMostBytes = 0x1p40;

double whole(double) { return 1; }
double others(double ranks) { return (ranks - 1) / ranks; }
double there_and_back(double ranks) { return 2 * others(ranks); }

dsc_result_t all_reduce(const Rank& self, float* in, float*, size_t count) {
  return dsc_all_reduce(self.world, in, in, count, kF32, DSC_OP_SUM, nullptr, nullptr);
}
dsc_result_t reduce(const Rank& self, float* in, float*, size_t count) {
  return dsc_reduce(self.world, in, in, count, kF32, DSC_OP_SUM, kRoot, nullptr, nullptr);
}
dsc_result_t broadcast(const Rank& self, float* in, float*, size_t count) {
  return dsc_broadcast(self.world, in, in, count, kF32, kRoot, nullptr, nullptr);
}
dsc_result_t all_gather(const Rank& self, float* in, float* out, size_t count) {
  return dsc_all_gather(self.world, in, out, count, kF32, nullptr, nullptr);
}
dsc_result_t gather(const Rank& self, float* in, float* out, size_t count) {
  return dsc_gather(self.world, in, out, count, kF32, kRoot, nullptr, nullptr);
}
dsc_result_t reduce_scatter(const Rank& self, float* in, float* out, size_t count) {
  return dsc_reduce_scatter(self.world, in, out, count, kF32, DSC_OP_SUM, nullptr, nullptr);
}
dsc_result_t scatter(const Rank& self, float* in, float* out, size_t count) {
  return dsc_scatter(self.world, in, out, count, kF32, kRoot, nullptr, nullptr);
}
dsc_result_t all_to_all(const Rank& self, float* in, float* out, size_t count) {
  return dsc_all_to_all(self.world, in, out, count, kF32, nullptr, nullptr);
}
dsc_result_t barrier(const Rank& self, float*, float*, size_t) {
  return dsc_barrier(self.world, nullptr, nullptr);
}

dsc_result_t send_recv(const Rank& self, float* in, float* out, size_t count) {
  const int32_t peer = self.rank ^ 1;
  const auto send = [&](float* buffer) {
    return dsc_send(self.world, buffer, count, kF32, peer, nullptr, nullptr);
  };
  const auto recv = [&](float* buffer) {
    return dsc_recv(self.world, buffer, count, kF32, peer, nullptr, nullptr);
  };
  const bool first = self.rank % 2 == 0;
  const dsc_result_t there = first ? send(in) : recv(out);
  if (there != DSC_OK) return there;
  return first ? recv(out) : send(out);
}

size_t parse_size(const std::string& text) {
  const auto bytes = tools::parse_bytes(text);
  const auto whole = static_cast<size_t>(std::min(bytes.value_or(0), kMostBytes));
  if (!bytes || *bytes > kMostBytes || whole == 0 || static_cast<double>(whole) != *bytes ||
      whole % sizeof(float) != 0)
    throw std::invalid_argument("--sizes: expected multiples of 4 bytes such as 4, 16KiB or 25MiB, got '" +
                                text + "'");
  return whole;
}

Case parse_case(const std::string& text) {
  const size_t buffers = text.find(':'), bytes = text.rfind(':');
  if (buffers == bytes)
    throw std::invalid_argument("--as-rank: expected OPERATION:BUFFERS:BYTES, got '" + text + "'");
  return {&find_operation(text.substr(0, buffers)), text.substr(buffers, bytes - buffers) == ":shared",
          std::stoul(text.substr(bytes + 1))};
}

}  // namespace

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = {
      {"all_reduce", "dsc:all_reduce", false, true, false, there_and_back, all_reduce},
      {"broadcast", "dsc:broadcast", false, true, false, whole, broadcast},
      {"all_gather", "dsc:all_gather", true, true, false, others, all_gather},
      {"reduce_scatter", "dsc:reduce_scatter", true, true, false, others, reduce_scatter},
      {"all_to_all", "dsc:all_to_all", true, true, false, others, all_to_all},
      {"reduce", "dsc:reduce", false, true, false, whole, reduce},
      {"gather", "dsc:gather", true, true, false, others, gather},
      {"scatter", "dsc:scatter", true, true, false, others, scatter},
      {"send_recv", "dsc:recv", false, true, true, whole, send_recv},
      {"barrier", "dsc:barrier", false, false, false, whole, barrier},
  };
  return all;
}

const Operation& find_operation(const std::string& name) {
  std::vector<std::string> known;
  std::string list;
  for (const Operation& operation : operations()) {
    if (name == operation.name) return operation;
    known.emplace_back(operation.name);
    list += (list.empty() ? "" : ", ") + known.back();
  }
  throw std::invalid_argument("unknown operation '" + name + "'" + tools::did_you_mean(name, known) +
                              " (known operations: " + list + "; all measures all of them)");
}

std::vector<size_t> parse_sizes(const std::string& text) {
  std::vector<size_t> sizes;
  for (const std::string& item : tools::split(text, ',')) sizes.push_back(parse_size(item));
  return sizes;
}

std::string size_text(size_t bytes) {
  constexpr const char* kUnits[] = {" B", " KiB", " MiB", " GiB"};
  size_t unit = 0;
  for (; unit + 1 < std::size(kUnits) && bytes >= 1024 && bytes % 1024 == 0; ++unit) bytes /= 1024;
  return std::to_string(bytes) + kUnits[unit];
}

std::string case_text(const Case& one) {
  return std::string(one.operation->name) + (one.shared ? ":shared:" : ":plain:") + std::to_string(one.bytes);
}

std::vector<Case> parse_cases(const std::string& text) {
  std::vector<Case> cases;
  if (text.empty()) return cases;
  for (const std::string& item : tools::split(text, ',')) cases.push_back(parse_case(item));
  return cases;
}

}  // namespace dscctl::bench
