#include "dscctl/bench/report.hpp"

#include <sched.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <set>
#include <sstream>

namespace dscctl::bench {
namespace {

constexpr size_t kShownAsNoLimit = size_t{1} << 60;  // settings of at least this size are shown as "no limit"
constexpr size_t kWidth = 110;

bool is_part_of_word(char letter) {
  return std::isalnum(static_cast<unsigned char>(letter)) || letter == '_';
}

// Appends values to a rule: "at most direct_bytes" becomes "at most direct_bytes (128 KiB)".
std::string with_values(const std::string& rule, const Settings& settings) {
  std::string text, word;
  for (const char letter : rule + "\n") {
    if (is_part_of_word(letter)) {
      word += letter;
      continue;
    }
    text += word;
    for (const auto& [key, value] : settings)
      if (word == key) text += " (" + setting_text(value) + ")";
    word.clear();
    if (letter != '\n') text += letter;
  }
  return text;
}

std::string wrapped(const std::string& words, const std::string& first_indent, size_t indent) {
  std::istringstream rest(words);
  std::string text = first_indent, word;
  size_t column = indent;
  for (; rest >> word; column += word.size() + 1) {
    if (column + word.size() > kWidth) {
      text.pop_back();
      text += "\n" + std::string(indent, ' ');
      column = indent;
    }
    text += word + " ";
  }
  text.back() = '\n';
  return text;
}

constexpr size_t kNameWidth = 15;
constexpr size_t kBuffersWidth = 7;
constexpr size_t kColumnWidth = 9;

std::string padded(const std::string& text, size_t width) {
  return text + std::string(width - std::min(width, text.size()), ' ');
}

// Returns a text in the column for a size.
std::string column(const std::string& text, size_t bytes) {
  const size_t width = std::max(kColumnWidth, size_text(bytes).size() + 1);
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

const char* buffers_name(bool shared) { return shared ? "shared" : "plain"; }

// Returns text such as "4 ranks on 2 processors".
std::string ranks_text(int ranks) {
  const auto counted = [](int count, const std::string& what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
  };
  return counted(ranks, "rank") + " on " + counted(allowed_processors(), "processor");
}

}  // namespace

int allowed_processors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 0;
}

const char* engine_name(const Case& one) { return one.shared ? "libdsc_zero_copy" : "libdsc"; }

std::string setting_text(size_t value) { return value >= kShownAsNoLimit ? "no limit" : size_text(value); }

double gigabytes_per_second(const Row& row) {
  return row.of.operation->moves ? static_cast<double>(row.of.bytes) / row.median_us / 1e3 : 0;
}

std::string microseconds_text(double us) {
  char text[32];
  std::snprintf(text, sizeof text, us < 100 ? "%.2f" : "%.0f", us);
  return text;
}

std::string table_head(const std::vector<size_t>& sizes, int ranks) {
  std::string text = "f32, " + ranks_text(ranks) + ": median time of the slowest rank in microseconds\n";
  text += padded("operation", kNameWidth) + padded("buffers", kBuffersWidth);
  for (const size_t bytes : sizes) text += column(size_text(bytes), bytes);
  return text + "\n";
}

std::string table_lines(const Operation& operation, const std::vector<Row>& rows) {
  std::string text;
  for (const bool shared : {false, true}) {
    std::string times;
    for (const Row& row : rows)
      if (row.of.shared == shared) times += column(microseconds_text(row.median_us), row.of.bytes);
    if (times.empty()) continue;  // an operation that moves no data has no buffers
    const char* const buffers = operation.moves ? buffers_name(shared) : "-";
    text += padded(operation.name, kNameWidth) + padded(buffers, kBuffersWidth) + times + "\n";
  }
  return text;
}

std::string headline(const Operation& operation, int ranks, bool explain) {
  char text[256];
  std::snprintf(text, sizeof text,
                "%s, f32, %s: median time of the slowest rank, bandwidths in GB/s\n"
                "%10s  %-9s  %10s  %7s  %7s%s\n",
                operation.name, ranks_text(ranks).c_str(), "bytes", "buffers", "us", "algbw", "busbw",
                explain ? "  switches  algorithm" : "");
  return text;
}

std::string row_text(const Row& row, int ranks, bool explain) {
  const double rate = gigabytes_per_second(row);
  char text[256], more[64] = "";
  if (explain) std::snprintf(more, sizeof more, "  %8.2f  %s", row.switches, row.algorithm.c_str());
  std::snprintf(text, sizeof text, "%10s  %-9s  %10.2f  %7.2f  %7.2f%s\n", size_text(row.of.bytes).c_str(),
                buffers_name(row.of.shared), row.median_us, rate, rate * row.of.operation->bus_factor(ranks),
                more);
  return text;
}

std::string turns_text(const std::vector<Row>& rows, int ranks, bool explain) {
  constexpr double kMany = 0.5;
  const int processors = allowed_processors();
  const bool many =
      std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.switches > kMany; });
  std::string text;
  if (ranks > processors)
    text = std::to_string(ranks) + " ranks share " + std::to_string(processors) +
           (processors == 1 ? " processor" : " processors") +
           " and take turns by sleeping and yielding, so times include waiting for a turn.";
  else if (many)
    text =
        "There are enough processors for all ranks, but ranks had to wait for one: other programs are "
        "running.";
  if (text.empty()) return "";
  text += explain ? " switches: context switches of a rank in one operation, on average."
                  : " -v (for all operations: --json) counts context switches.";
  return wrapped(text, "", 0);
}

std::string reasons_text(const Facts& facts, const std::vector<Row>& rows) {
  std::set<std::string> seen;
  std::string text = "\nWhy (the sizes are settings of DSC_TUNING; all algorithms give the same bits):\n";
  for (const Row& row : rows) {
    const auto rule = facts.rules.find(row.algorithm);
    if (rule == facts.rules.end() || !seen.insert(row.algorithm).second) continue;
    char name[32];
    std::snprintf(name, sizeof name, "  %-11s", row.algorithm.c_str());
    text += wrapped(with_values(rule->second, facts.settings), name, 13);
  }
  if (seen.empty())
    text += "  no algorithm was recorded: the operation moves no data, or DSC_TRACE_BUFFER_SIZE is 0\n";
  return text + "DSC_TUNING=" + settings_text(facts.settings) + "\n";
}

void add_to_json(Json& report, const Facts& facts, const std::vector<Row>& rows, int ranks) {
  report["processors"] = allowed_processors();
  for (const auto& [name, rule] : facts.rules) report["algorithms"][name] = rule;
  for (const auto& [key, value] : facts.settings) report["tuning"][std::to_string(ranks)][key] = value;
  for (const Row& row : rows)
    report["rows"].push_back({{"op", row.of.operation->name},
                              {"engine", engine_name(row.of)},
                              {"ranks", ranks},
                              {"bytes", row.of.bytes},
                              {"median_us", row.median_us},
                              {"algorithm", row.algorithm == "-" ? Json(nullptr) : Json(row.algorithm)},
                              {"context_switches", row.switches}});
}

}  // namespace dscctl::bench
