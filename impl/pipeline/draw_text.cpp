// Draws one line per stage. A column is a unit of time, so that an operation is as wide as its duration. Long
// schedules are scaled to a maximum line length; labels that do not fit are left out.
#include <algorithm>
#include <cmath>

#include "pipeline/draw.hpp"

namespace dsc {
namespace {

constexpr double kMostColumns = 2000;
constexpr size_t kLabelGap = 1;  // columns between a label and the next operation

// The content of one box: one operation, or two overlapping operations.
struct Cell {
  std::string label;
  PipeOp op{};
  int32_t chunk = 0;
  double start = 0;
  double end = 0;
};

std::vector<Cell> cells_of(const PipelinePlan& plan, const std::vector<PipelineSpan>& spans) {
  std::vector<Cell> cells;
  for (size_t k = 0; k < spans.size(); ++k) {
    const PipelineSpan& span = spans[k];
    const std::string label = label_of(plan, span.op);
    if (k > 0 && spans[k - 1].op.overlaps && spans[k - 1].start == span.start)
      cells.back().label += "+" + label;
    else
      cells.push_back({label, span.op.op, span.op.chunk, span.start, span.end});
  }
  return cells;
}

// Returns the number of columns per unit of time at which every label fits into its operation, limited by the
// maximum line length.
double columns_per_time(const std::vector<std::vector<Cell>>& rows, double makespan) {
  double needed = 0;
  for (const auto& row : rows)
    for (const Cell& cell : row)
      if (cell.end > cell.start)
        needed =
            std::max(needed, static_cast<double>(cell.label.size() + kLabelGap) / (cell.end - cell.start));
  return makespan > 0 ? std::min(needed, kMostColumns / makespan) : 0;
}

const char* color_of(const Cell& cell) {
  const bool odd = cell.chunk % 2 == 1;
  switch (cell.op) {
    case PipeOp::kForward:
      return odd ? "\033[30;104m" : "\033[97;44m";
    case PipeOp::kBackwardWeight:
      return odd ? "\033[30;103m" : "\033[30;43m";
    default:
      return odd ? "\033[30;102m" : "\033[30;42m";
  }
}

std::string row_of(const std::vector<Cell>& cells, double scale, double makespan, bool with_color) {
  const auto column = [&](double time) { return static_cast<size_t>(std::llround(time * scale)); };
  std::string row;
  size_t at = 0;
  for (const Cell& cell : cells) {
    const size_t start = std::max(at, column(cell.start));
    const size_t width = std::max(column(cell.end), start) - start;
    row.append(start - at, with_color ? ' ' : '.');
    // A cut label could be read as another label, so a label that does not fit is left out.
    std::string text = cell.label.size() <= width ? cell.label : "";
    text.append(width - text.size(), with_color || text.size() + kLabelGap == width ? ' ' : '-');
    if (!with_color && !text.empty() && width > cell.label.size()) text.back() = ' ';
    row += with_color && width > 0 ? color_of(cell) + text + "\033[0m" : text;
    at = start + width;
  }
  const size_t end = std::max(at, column(makespan));
  return row.append(end - at, with_color ? ' ' : '.');
}

}  // namespace

std::string draw_text(const PipelinePlan& plan, const PipelineReport& report, bool with_color) {
  std::vector<std::vector<Cell>> rows;
  for (const auto& spans : report.timeline) rows.push_back(cells_of(plan, spans));
  const double scale = columns_per_time(rows, report.makespan);
  const size_t digits = std::to_string(rows.size() - 1).size();
  std::string text = title_of(plan) + "\n";
  for (size_t stage = 0; stage < rows.size(); ++stage) {
    std::string number = std::to_string(stage);
    number.insert(0, digits - number.size(), ' ');
    text += number + " |" + row_of(rows[stage], scale, report.makespan, with_color) + "| holds " +
            std::to_string(report.stages[stage].peak_activations) + "\n";
  }
  return text + summary_of(report) + "\n";
}

}  // namespace dsc
