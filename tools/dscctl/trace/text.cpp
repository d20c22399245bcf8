#include "dscctl/trace/text.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

namespace dscctl::trace {
namespace {

struct Unit {
  double ns;
  const char* name;
};
constexpr std::array kUnits = {Unit{1e9, "s"}, Unit{1e6, "ms"}, Unit{1e3, "us"}};

// Returns the width on a terminal, by counting bytes that start a UTF-8 character.
size_t width(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

std::string ranks_text(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - i < 3) end = i + 1;  // two consecutive ranks are listed separately
    if (i > 0) text += ", ";
    text += std::to_string(ranks[i]);
    if (end - i > 1) text += "-" + std::to_string(ranks[end - 1]);
    i = end;
  }
  return text;
}

std::string duration_text(int64_t ns) {
  char text[32];
  for (const Unit& unit : kUnits) {
    const double value = static_cast<double>(ns) / unit.ns;
    if (value < 1) continue;
    const int digits = value < 10 ? 2 : value < 100 ? 1 : 0;
    std::snprintf(text, sizeof text, "%.*f %s", digits, value, unit.name);
    return text;
  }
  return std::to_string(ns) + " ns";
}

std::string count_text(int64_t count, const char* one) {
  std::string digits = std::to_string(count);
  for (auto at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return digits + " " + one + (count == 1 ? "" : "s");
}

std::string table_text(const std::vector<std::vector<std::string>>& rows, const std::vector<size_t>& left) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t column = 0; column < row.size(); ++column)
      widths[column] = std::max(widths[column], width(row[column]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t column = 0; column < row.size(); ++column) {
      const std::string padding(widths[column] - width(row[column]), ' ');
      const bool at_left = std::find(left.begin(), left.end(), column) != left.end();
      line += (column == 0 ? "  " : "   ") + (at_left ? row[column] + padding : padding + row[column]);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace dscctl::trace
