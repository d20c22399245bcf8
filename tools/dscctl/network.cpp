#include "dscctl/network.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "common/output_file.hpp"
#include "common/text_file.hpp"
#include "common/units.hpp"

namespace dscctl {
namespace {

using NetworkJson = nlohmann::ordered_json;

constexpr const char* kNetworkFormat = "libdsc network";
constexpr int kNetworkVersion = 1;
constexpr double kUsPerSecond = 1e6;
constexpr double kMostError = 0.25;

NetworkJson lines_json(const std::vector<NetworkLine>& lines) {
  NetworkJson all = NetworkJson::array();
  for (const NetworkLine& line : lines) {
    NetworkJson measured = NetworkJson::array();
    for (const bench::Measured& it : line.measured) measured.push_back({{"bytes", it.bytes}, {"us", it.us}});
    all.push_back({{"ranks", line.ranks},
                   {"latency_us", line.latency_us},
                   {"bytes_per_s",
                    line.bytes_per_us > 0 ? NetworkJson(line.bytes_per_us * kUsPerSecond) : NetworkJson()},
                   {"largest_relative_error", line.largest_error},
                   {"measured", measured}});
  }
  return all;
}

[[noreturn]] void refuse_json(const std::string& path, const std::string& expected, const NetworkJson& got) {
  throw std::invalid_argument(path + " is " + got.dump().substr(0, 60) + ", expected " + expected);
}

const NetworkJson& member(const NetworkJson& json, const char* name, const std::string& path) {
  if (!json.is_object()) refuse_json(path, "an object", json);
  const auto found = json.find(name);
  if (found == json.end()) throw std::invalid_argument(path + " has no \"" + name + "\"");
  return *found;
}

double value_in(const NetworkJson& json, const char* name, const std::string& path) {
  const NetworkJson& value = member(json, name, path);
  const bool is_fine = value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() >= 0;
  if (!is_fine) refuse_json(path + ", " + name + ",", "a number of 0 or more", value);
  return value.get<double>();
}

NetworkLine line_in(const NetworkJson& json, const std::string& path) {
  NetworkLine line;
  const NetworkJson& ranks = member(json, "ranks", path);
  if (!ranks.is_number_integer() || ranks.get<int64_t>() < 1 || ranks.get<int64_t>() > INT32_MAX)
    refuse_json(path + ", ranks,", "a whole number of 1 or more", ranks);
  line.ranks = ranks.get<int>();
  line.latency_us = value_in(json, "latency_us", path);
  if (!member(json, "bytes_per_s", path).is_null()) {
    line.bytes_per_us = value_in(json, "bytes_per_s", path) / kUsPerSecond;
    if (line.bytes_per_us <= 0)
      refuse_json(path + ", bytes_per_s,", "a number above 0, or null if it is unlimited",
                  json["bytes_per_s"]);
  }
  if (json.contains("largest_relative_error"))
    line.largest_error = value_in(json, "largest_relative_error", path);
  return line;
}

std::vector<NetworkLine> lines_in(const NetworkJson& json, const char* name) {
  const NetworkJson& list = member(json, name, "the file");
  if (!list.is_array() || list.empty()) refuse_json(name, "a list with at least one entry", list);
  std::vector<NetworkLine> lines;
  for (const NetworkJson& one : list)
    lines.push_back(line_in(one, std::string(name) + "[" + std::to_string(lines.size()) + "]"));
  return lines;
}

NetworkFile network_in(const std::string& text) {
  NetworkJson json;
  try {
    json = NetworkJson::parse(text);
  } catch (const NetworkJson::parse_error& error) {
    const std::string words = error.what();  // such as "[...] parse error at line 1, column 5: ..."
    const size_t line = words.find("line ");
    throw std::invalid_argument(line == std::string::npos ? words : words.substr(line));
  }
  if (const NetworkJson& format = member(json, "format", "the file"); format != kNetworkFormat)
    refuse_json("format",
                "\"" + std::string(kNetworkFormat) + "\", the format that `dscctl bench --network` writes",
                format);
  if (const NetworkJson& version = member(json, "version", "the file"); version != kNetworkVersion)
    refuse_json("version", std::to_string(kNetworkVersion), version);
  return {lines_in(json, "messages"), lines_in(json, "all_reduces")};
}

std::string line_words(const char* what, const NetworkLine& line) {
  char text[256];
  std::snprintf(text, sizeof text,
                "%-12s %5d ranks   latency %10s   bandwidth %12s   largest error of the fit %.0f %%%s\n",
                what, line.ranks, tools::time_text(line.latency_us).c_str(),
                line.bytes_per_us > 0 ? (tools::bytes_text(line.bytes_per_us * kUsPerSecond) + "/s").c_str()
                                      : "unlimited",
                100 * line.largest_error,
                line.largest_error > kMostError ? ": the times are far from linear in the bytes" : "");
  return text;
}

}  // namespace

NetworkLine line_of(int ranks, const std::vector<bench::Measured>& measured) {
  const bench::Fit fit = bench::fit_line(measured);
  return {ranks, fit.latency_us, fit.us_per_byte > 0 ? 1 / fit.us_per_byte : 0, fit.largest_error, measured};
}

const NetworkLine& nearest(const std::vector<NetworkLine>& lines, int ranks) {
  const auto distance = [&](const NetworkLine& line) {
    return std::abs(std::log(static_cast<double>(line.ranks) / std::max(ranks, 1)));
  };
  return *std::min_element(lines.begin(), lines.end(), [&](const NetworkLine& a, const NetworkLine& b) {
    return std::make_pair(distance(a), -a.ranks) < std::make_pair(distance(b), -b.ranks);
  });
}

std::string network_text(const NetworkFile& network) {
  std::string text;
  for (const NetworkLine& line : network.messages) text += line_words("send_recv", line);
  for (const NetworkLine& line : network.all_reduces) text += line_words("all_reduce", line);
  return text;
}

void write_network(const NetworkFile& network, const std::string& path) {
  const NetworkJson json{{"format", kNetworkFormat},
                         {"version", kNetworkVersion},
                         {"messages", lines_json(network.messages)},
                         {"all_reduces", lines_json(network.all_reduces)}};
  tools::write_file(path, json.dump(1) + "\n");
}

NetworkFile read_network(const std::string& path) {
  try {
    return network_in(tools::text_of_file(path));
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(path + ": " + error.what());
  }
}

}  // namespace dscctl
