#include <algorithm>
#include <cstdio>

#include "dscctl/bench/report.hpp"
#include "dscctl/bench/tune.hpp"

namespace dscctl::bench {
namespace {

std::string padded(const std::string& text, int width) {  // negative width: aligned to the left
  char line[160];
  std::snprintf(line, sizeof line, "%*s", width, text.c_str());
  return line;
}

std::string case_words(const Case& one) {
  return std::string(one.operation->name) + (one.shared ? " shared " : " plain ") + size_text(one.bytes);
}

std::string microseconds(double us) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", us < 10 ? 2 : us < 100 ? 1 : 0, us);
  return text;
}

// Returns a table with a line for each case and a column for each value.
std::string times_text(const TunedSetting& one) {
  std::string text = "\n" + padded(one.key + ", us", -32);
  for (const Candidate& candidate : one.candidates) text += padded(setting_text(candidate.value), 10);
  text += "\n";
  for (size_t at = 0; at < one.cases.size(); ++at) {
    text += padded(case_words(one.cases[at]), -32);
    for (const Candidate& candidate : one.candidates) text += padded(microseconds(candidate.best_us[at]), 10);
    text += "\n";
  }
  return text;
}

}  // namespace

std::string tuned_text(const Tuned& tuned, int ranks, bool with_times) {
  std::string text = std::to_string(ranks) + " ranks on " + std::to_string(allowed_processors()) +
                     " processors\n" + padded("setting", -24) + padded("present", 12) +
                     padded("fastest", 12) + padded("saves", 9) + "  differs in\n";
  for (const TunedSetting& one : tuned.details) {
    char gain[16] = "-";
    if (one.fastest != one.present) std::snprintf(gain, sizeof gain, "%.0f %%", 100 * one.gain);
    text += padded(one.key, -24) + padded(setting_text(one.present), 12) +
            padded(setting_text(one.fastest), 12) + padded(gain, 9) + "  " +
            std::to_string(one.cases.size()) + (one.cases.size() == 1 ? " case\n" : " cases\n");
  }
  if (!with_times) return text;
  for (const TunedSetting& one : tuned.details)
    if (!one.cases.empty()) text += times_text(one);
  return text;
}

std::string table_text(const std::vector<std::pair<int, Settings>>& lines) {
  std::string text = padded("ranks", 5);
  const auto width = [](const std::string& key) {
    return static_cast<int>(std::max<size_t>(key.size(), 8)) + 2;
  };
  for (const auto& [key, value] : lines.front().second) text += padded(key, width(key));
  for (const auto& [ranks, settings] : lines) {
    text += "\n" + padded(std::to_string(ranks), 5);
    for (const auto& [key, value] : settings) text += padded(setting_text(value), width(key));
  }
  text += "\n";
  for (const auto& [ranks, settings] : lines)
    text += "\nfor " + std::to_string(ranks) + " ranks: DSC_TUNING=" + settings_text(settings);
  return text + "\n";
}

void add_to_json(Json& report, const Tuned& tuned, int ranks) {
  Json details = Json::array();
  for (const TunedSetting& one : tuned.details) {
    Json values = Json::array(), cases = Json::array();
    for (const Candidate& each : one.candidates) values.push_back(each.value);
    for (size_t at = 0; at < one.cases.size(); ++at) {
      Json times = Json::object();
      for (const Candidate& each : one.candidates) times[std::to_string(each.value)] = each.best_us[at];
      cases.push_back({{"op", one.cases[at].operation->name},
                       {"engine", engine_name(one.cases[at])},
                       {"bytes", one.cases[at].bytes},
                       {"best_us", times}});
    }
    details.push_back({{"key", one.key},
                       {"present", one.present},
                       {"fastest", one.fastest},
                       {"gain", one.gain},
                       {"values", values},
                       {"cases", cases}});
  }
  report["processors"] = allowed_processors();
  report["tuned"].push_back(
      {{"ranks", ranks}, {"DSC_TUNING", settings_text(tuned.settings)}, {"settings", details}});
}

}  // namespace dscctl::bench
