#include "dscctl/trace/report.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

#include "dscctl/trace/perfetto.hpp"
#include "dscctl/trace/text.hpp"

namespace dscctl::trace {
namespace {

constexpr int kShownPerKind = 10;
constexpr size_t kShownRanks = 16;  // rows of the lateness table
constexpr size_t kLabelWidth = 9;

// Escape sequences for colors; empty texts if the output cannot show colors.
class Colors {
 public:
  explicit Colors(bool on) : on_(on) {}
  std::string bold(const std::string& text) const { return wrap("1", text); }
  std::string red(const std::string& text) const { return wrap("1;31", text); }
  std::string yellow(const std::string& text) const { return wrap("1;33", text); }
  std::string green(const std::string& text) const { return wrap("32", text); }
  std::string dim(const std::string& text) const { return wrap("2", text); }

 private:
  std::string wrap(const char* code, const std::string& text) const {
    return on_ ? std::string("\033[") + code + "m" + text + "\033[0m" : text;
  }
  bool on_;
};

std::string head_text(const Report& report) {
  const Trace& trace = report.trace;
  int64_t entries = 0;
  TimeNs end = first_time(trace);
  for (const Dump& dump : trace.dumps) {
    entries += static_cast<int64_t>(dump.entries.size());
    end = std::max(end, dump.time);
  }
  return std::to_string(trace.dumps.size()) + " of " + count_text(trace.world_size, "rank") + ", " +
         count_text(static_cast<int64_t>(trace.groups.size()), "group") + ", " +
         count_text(static_cast<int64_t>(report.operations.size()), "operation") + " (" +
         (entries == 1 ? "1 entry" : count_text(entries, "entrie")) + ") in " +
         duration_text(end - first_time(trace));
}

std::string label(const Finding& finding, const Colors& colors) {
  std::string name = kind_name(finding.kind);
  name.resize(std::max(name.size(), kLabelWidth), ' ');
  const bool is_mild = finding.kind == Kind::kNoDump || finding.kind == Kind::kStraggler;
  return is_mild ? colors.yellow(name) : colors.red(name);
}

std::string findings_text(const Report& report, bool all, const Colors& colors) {
  std::string text;
  std::map<Kind, int> shown, hidden;
  for (const Finding& finding : report.findings) {
    if (!all && ++shown[finding.kind] > kShownPerKind) {
      ++hidden[finding.kind];
      continue;
    }
    text += "  " + label(finding, colors) + "  " + finding.text + "\n";
  }
  for (const auto& [kind, count] : hidden)
    text += "  " +
            colors.dim("and " + std::to_string(count) + " more " + kind_name(kind) + " (--all shows them)") +
            "\n";
  return text.empty()
             ? "  " + colors.green("no rank delays other ranks, no operation failed, all calls match") + "\n"
             : text;
}

std::string percent(int64_t part, int64_t whole) {
  return whole == 0 ? "-" : std::to_string((100 * part + whole / 2) / whole) + " %";
}

// The ranks that cost the others most time come first.
std::string lateness_text(const Report& report, const Colors& colors) {
  std::vector<Lateness> rows = report.lateness;
  std::erase_if(rows, [](const Lateness& row) { return row.operations == 0; });
  if (rows.empty()) return "";
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Lateness& a, const Lateness& b) { return a.caused_ns > b.caused_ns; });
  std::vector<std::vector<std::string>> table = {
      {"rank", "last in", "share", "all others waited", "mean delay", "worst", ""}};
  for (size_t i = 0; i < std::min(rows.size(), kShownRanks); ++i) {
    const Lateness& row = rows[i];
    table.push_back({std::to_string(row.rank),
                     std::to_string(row.last) + " of " + std::to_string(row.operations),
                     percent(row.last, row.operations), duration_text(row.caused_ns),
                     duration_text(row.mean_ns), row.worst == nullptr ? "-" : duration_text(row.worst_ns),
                     row.worst == nullptr ? "" : title(report.trace, *row.worst)});
  }
  std::string text =
      "\n" + colors.bold("Ranks that arrive last at collectives") + "\n" + table_text(table, {6});
  if (rows.size() > kShownRanks)
    text +=
        "  " +
        colors.dim("and " + std::to_string(rows.size() - kShownRanks) + " ranks that delay the others less") +
        "\n";
  return text;
}

std::string hosts_text(const Trace& trace) {
  std::set<std::string> hosts;
  for (const Dump& dump : trace.dumps) hosts.insert(dump.host);
  if (hosts.size() < 2) return "";
  return "  the ranks ran on " + std::to_string(hosts.size()) +
         " hosts: differences between their clocks make times of different hosts inexact\n";
}

}  // namespace

Report make_report(const Trace& trace, const std::vector<Operation>& operations, const Rules& rules) {
  std::vector<Lateness> lateness = measure_lateness(trace, operations);
  std::vector<Finding> findings = find_all(trace, operations, lateness, rules);
  return {trace, operations, std::move(findings), std::move(lateness)};
}

std::string report_text(const Report& report, bool all, bool colored) {
  const Colors colors(colored);
  std::string text = colors.bold(head_text(report)) + "\n" + hosts_text(report.trace);
  for (const Problem& problem : report.trace.problems)
    text += "  " + colors.yellow("not used") + "  " + problem.file + ": " + problem.text + "\n";
  text += "\n" + colors.bold("Findings") + "\n" + findings_text(report, all, colors);
  return text + lateness_text(report, colors);
}

Json report_json(const Report& report) {
  const Trace& trace = report.trace;
  Json json = {{"world_size", trace.world_size}, {"missing_ranks", trace.missing}};
  json["unused_files"] = json["findings"] = json["lateness"] = Json::array();
  for (const Problem& problem : trace.problems)
    json["unused_files"].push_back({{"file", problem.file}, {"text", problem.text}});
  for (const Finding& finding : report.findings) {
    Json item = {{"kind", kind_name(finding.kind)}, {"text", finding.text}, {"ranks", finding.ranks}};
    if (const Operation* operation = finding.operation) {
      item["group"] = trace.groups[operation->group].name;
      item["number"] = operation->sequence;
      item["device"] = operation->on_device();
      item["operation"] = operation->any_entry().name;
    }
    json["findings"].push_back(std::move(item));
  }
  for (const Lateness& row : report.lateness)
    json["lateness"].push_back({{"rank", row.rank},
                                {"operations", row.operations},
                                {"last", row.last},
                                {"others_waited_ns", row.caused_ns},
                                {"mean_delay_ns", row.mean_ns},
                                {"worst_delay_ns", row.worst_ns},
                                {"worst", row.worst == nullptr ? Json() : Json(title(trace, *row.worst))}});
  return json;
}

}  // namespace dscctl::trace
