#include "dscctl/schedule/pictures.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "common/units.hpp"

namespace dscctl::schedule {
namespace {

constexpr const char* kPlain = "\033[0m";

// A line of a picture, such as "0 |F0 F1...| holds 8", split at the bars.
struct PictureLine {
  std::string before, cells, after;
};

PictureLine cut_line(const std::string& line) {
  const size_t first = line.find('|'), last = line.rfind('|');
  if (first == std::string::npos || first == last) return {line, "", ""};
  return {line.substr(0, first + 1), line.substr(first + 1, last - first - 1), line.substr(last)};
}

// Returns the length of the escape sequence at `at`, which takes no columns on the terminal.
size_t escape_at(const std::string& text, size_t at) {
  return text[at] == '\033' ? text.find('m', at) + 1 - at : 0;
}

// Returns this number of columns of `text`, starting at `at`, and moves `at` past them. The result begins
// with the color that applies there.
std::string take_columns(const std::string& text, size_t& at, std::string& color, size_t columns) {
  std::string piece = color;
  for (size_t taken = 0; at < text.size();) {
    if (const size_t escape = escape_at(text, at)) {
      color = text.substr(at, escape);
      if (color == kPlain) color.clear();
      piece += text.substr(at, escape);
      at += escape;
    } else if (taken++ < columns) {
      piece += text[at++];
    } else {
      break;
    }
  }
  return color.empty() ? piece : piece + kPlain;
}

using Row = std::array<std::string, 6>;

std::string rows_text(const std::vector<Row>& rows) {
  std::array<size_t, std::tuple_size_v<Row>> widths{};
  for (const Row& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - row[i].size(), ' ');
      text += i == 0 ? row[i] + space : "  " + space + row[i];
    }
    text += "\n";
  }
  return text;
}

Row row_of_schedule(const Handle& schedule, const Priced& priced, bool of_stage) {
  const auto info = describe(schedule);
  double own = 0;
  for (const auto& stage : priced.stages) own = std::max(own, stage.own_window_idle);
  char idle[32];
  std::snprintf(idle, sizeof idle, "%.1f %%", 100 * idle_part(priced));
  const double bytes = priced.stages[fullest_stage(priced)].peak_bytes;
  return {name_of(schedule) + (info.chunks > 1 ? " x " + std::to_string(info.chunks) + " chunks" : ""),
          shortened(priced.makespan),
          idle,
          shortened(own),
          shortened(static_cast<double>(peak_activations(priced)) / (of_stage ? info.chunks : 1)),
          bytes > 0 ? tools::bytes_text(bytes) : "-"};
}

}  // namespace

std::string shortened(double value) {
  constexpr double kLarge = 1e5;  // from here on, six digits do not include all digits before the point
  char text[32];
  std::snprintf(text, sizeof text, value >= kLarge ? "%.10g" : "%.6g", value);
  return text;
}

std::string folded(const std::string& picture, size_t columns) {
  std::vector<std::string> lines = tools::split(picture, '\n');
  std::vector<PictureLine> rows;
  std::string head, tail;
  for (const std::string& line : lines)
    if (const PictureLine cut = cut_line(line); !cut.cells.empty())
      rows.push_back(cut);
    else if (!line.empty())
      (rows.empty() ? head : tail) += line + "\n";
  std::vector<size_t> at(rows.size());
  std::vector<std::string> colors(rows.size());
  const auto is_left = [&] {
    for (size_t i = 0; i < rows.size(); ++i)
      if (at[i] < rows[i].cells.size()) return true;
    return false;
  };
  for (std::string text = head;;) {
    std::vector<std::string> pieces;
    for (size_t i = 0; i < rows.size(); ++i)
      pieces.push_back(take_columns(rows[i].cells, at[i], colors[i], columns));
    const bool is_last = !is_left();
    for (size_t i = 0; i < rows.size(); ++i)
      text += rows[i].before + pieces[i] + (is_last ? rows[i].after : "") + "\n";
    if (is_last) return text + tail;
    text += "\n";
  }
}

std::string comparison_of(const std::vector<Handle>& schedules, const std::vector<Priced>& prices) {
  std::vector<Row> rows{{"schedule", "makespan", "idle", "idle in its own window", "activations", "bytes"}};
  const bool of_stage = differ_in_chunks(schedules);
  for (size_t i = 0; i < schedules.size(); ++i)
    rows.push_back(row_of_schedule(schedules[i], prices[i], of_stage));
  const char* head = "costs and activations are for a whole stage, and its chunks share them evenly\n";
  return (of_stage ? head : "") + rows_text(rows);
}

std::string critical_path_of(const Handle& schedule, const dsc_pipe_costs_t& costs) {
  const Report report = report_of(schedule, costs);
  size_t spans = 0;
  expect_ok(dsc_pipe_report_critical_path(report.get(), nullptr, 0, &spans));
  std::vector<dsc_pipe_span_t> path(spans);
  if (spans > 0) path.front().struct_size = sizeof(dsc_pipe_span_t);
  expect_ok(dsc_pipe_report_critical_path(report.get(), path.data(), spans, &spans));
  std::vector<Row> rows{{"critical path", "start", "end", "stage", "chunk", "micro-batch"}};
  for (const auto& span : path)
    rows.push_back({dsc_pipe_op_name(span.op), shortened(span.start), shortened(span.finish),
                    std::to_string(span.stage), std::to_string(span.chunk),
                    std::to_string(span.micro_batch)});
  return rows_text(rows);
}

}  // namespace dscctl::schedule
