#include "common/units.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <stdexcept>

namespace tools {
namespace {

constexpr double kBitsOfUnits[] = {0, 10, 20, 30, 40};

std::string lowered(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return text;
}

// Returns the factor of a unit such as "", "b", "kb", "kib" or "k".
std::optional<double> factor_of(const std::string& unit) {
  constexpr std::string_view kPrefixes = " kmgt";
  if (unit.empty() || unit == "b") return 1;
  const size_t power = kPrefixes.find(unit[0]);
  if (power == std::string_view::npos || power == 0) return {};
  const std::string rest = unit.substr(1);
  if (rest == "b") return std::pow(1000.0, static_cast<double>(power));
  if (rest.empty() || rest == "ib") return std::exp2(kBitsOfUnits[power]);
  return {};
}

// Returns the number at the start of a text, and writes the text after it to `rest`.
std::optional<double> leading_number(const std::string& text, std::string& rest) {
  if (text.empty() || (std::isdigit(static_cast<unsigned char>(text[0])) == 0 && text[0] != '.')) return {};
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || !std::isfinite(value)) return {};
  rest.assign(stop, end);
  return value;
}

[[noreturn]] void refuse(const std::string& option, const std::string& expected, const std::string& text) {
  throw std::invalid_argument(option + ": expected " + expected + ", got '" + text + "'");
}

std::string rounded(double value, const char* unit) {
  char text[48];
  const int digits = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  std::snprintf(text, sizeof text, "%.*f %s", value == std::floor(value) && value < 1000 ? 0 : digits, value,
                unit);
  return text;
}

}  // namespace

std::optional<double> parse_number(const std::string& text) {
  std::string rest;
  const auto value = leading_number(text, rest);
  return rest.empty() ? value : std::nullopt;
}

std::optional<double> parse_bytes(const std::string& text) {
  std::string unit;
  const auto value = leading_number(text, unit);
  if (!value) return {};
  const auto factor = factor_of(lowered(unit));
  if (!factor || !std::isfinite(*value * *factor)) return {};
  return *value * *factor;
}

// A unit without "B" or "b" could mean bytes or bits, so it is refused.
std::optional<double> parse_rate(const std::string& text) {
  constexpr double kBitsOfByte = 8;
  if (!lowered(text).ends_with("/s")) return {};
  std::string amount = text.substr(0, text.size() - 2);
  const bool is_word = lowered(amount).ends_with("bit");
  if (is_word) amount.resize(amount.size() - 2);  // "Gbit" becomes "Gb"
  if (!lowered(amount).ends_with("b")) return parse_number(amount);
  const auto bytes = parse_bytes(amount);
  if (!bytes || (!is_word && amount.ends_with("B"))) return bytes;
  return *bytes / kBitsOfByte;
}

double number_of(const std::string& option, const std::string& text) {
  const auto value = parse_number(text);
  if (!value) refuse(option, "a number of 0 or more such as 12 or 0.5", text);
  return *value;
}

double bytes_of(const std::string& option, const std::string& text) {
  const auto value = parse_bytes(text);
  const bool has_half_a_unit =
      !text.empty() && std::string_view("kmgt").find(lowered(text).back()) != std::string_view::npos;
  if (!value || has_half_a_unit)
    refuse(option, "bytes such as 80GB (1000 MB), 25MiB (1024 KiB) or 65536", text);
  return *value;
}

double rate_of(const std::string& option, const std::string& text) {
  const auto value = parse_rate(text);
  if (!value) refuse(option, "bytes or bits per second such as 25GB/s, 400MiB/s or 100Gb/s", text);
  return *value;
}

int whole_of(const std::string& option, const std::string& text, int least) {
  int value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range && stop == text.data() + text.size() && text[0] != '-')
    refuse(option, "a whole number of at most " + std::to_string(std::numeric_limits<int>::max()), text);
  if (error != std::errc{} || stop != text.data() + text.size() || value < least)
    refuse(option, "a whole number of " + std::to_string(least) + " or more", text);
  return value;
}

double part_of(const std::string& option, const std::string& text) {
  const auto value = parse_number(text);
  if (!value || *value <= 0 || *value > 1)
    refuse(option, "a number above 0 and at most 1, such as 0.8", text);
  return *value;
}

std::vector<int> whole_list_of(const std::string& option, const std::string& text, int least) {
  std::vector<int> values;
  for (const std::string& item : split(text, ',')) values.push_back(whole_of(option, item, least));
  return values;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> items;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    items.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

std::string bytes_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "KB", "MB", "GB", "TB"};
  size_t unit = 0;
  for (; unit + 1 < std::size(kUnits) && bytes >= 1000; ++unit) bytes /= 1000;
  return rounded(bytes, kUnits[unit]);
}

std::string time_text(double us) {
  if (us < 1000) return rounded(us, "us");
  return us < 1e6 ? rounded(us / 1e3, "ms") : rounded(us / 1e6, "s");
}

double rounded_to(double value, int digits) {
  if (value == 0 || !std::isfinite(value)) return value;
  const int places = std::max(0, digits - 1 - static_cast<int>(std::floor(std::log10(std::abs(value)))));
  if (places > std::numeric_limits<double>::digits10) return value;
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", places, value);
  return std::strtod(text, nullptr);
}

std::string exact_text(double value) {
  std::array<char, 32> text{};
  const auto [stop, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), stop};
}

}  // namespace tools
