#include <algorithm>
#include <cmath>
#include <cstdio>

#include "pipeline/draw.hpp"

namespace dsc {
namespace {

constexpr double kLeft = 70, kTop = 46, kRow = 26, kGap = 4, kRight = 130, kBottom = 58;
constexpr double kLetter = 6.2;  // width of a character at the font size of the labels
constexpr double kFont = 11, kSmallestFont = 5.5;
// Limits of the time axis, in pixels: the picture fits on a page, and labels stay readable.
constexpr double kNarrowest = 600, kWidest = 1600;

const char* color_of(const Compute& op) {
  const bool odd = op.chunk % 2 == 1;
  switch (op.op) {
    case PipeOp::kForward:
      return odd ? "#93bbe8" : "#4f86c9";
    case PipeOp::kBackwardWeight:
      return odd ? "#f5c069" : "#e8982a";
    default:
      return odd ? "#98d083" : "#5aa845";
  }
}

const char* long_name(PipeOp op) {
  switch (op) {
    case PipeOp::kForward:
      return "forward";
    case PipeOp::kBackwardInput:
      return "backward, inputs";
    case PipeOp::kBackwardWeight:
      return "backward, weights";
    default:
      return "backward";
  }
}

// Escapes text for XML; control characters become '?'.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += c >= ' ' ? c : '?';
  }
  return out;
}

std::string fixed(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

std::string rect(double x, double y, double width, double height, const char* fill) {
  return "<rect x='" + fixed(x) + "' y='" + fixed(y) + "' width='" + fixed(width) + "' height='" +
         fixed(height) + "' fill='" + fill + "'";
}

std::string words(double x, double y, const char* anchor, const std::string& text) {
  return "<text x='" + fixed(x) + "' y='" + fixed(y) + "' text-anchor='" + anchor + "'>" + escaped(text) +
         "</text>\n";
}

// Draws the label horizontally if it fits. Otherwise it is rotated by 90 degrees and smaller, or left out if
// that does not fit either. The tooltip of the box always contains it.
std::string label_in_box(const std::string& label, double x, double y, double width, double height) {
  const auto letters = static_cast<double>(label.size());
  const std::string middle = "<text text-anchor='middle' pointer-events='none' ";
  if (width > kLetter * letters + 2)
    return middle + "x='" + fixed(x) + "' y='" + fixed(y + 3.6) + "'>" + label + "</text>";
  const double font = std::min({kFont, 0.95 * width, height / letters * kFont / kLetter});
  if (font < kSmallestFont) return "";
  return middle + "font-size='" + fixed(font) + "' transform='translate(" + fixed(x + 0.35 * font) + "," +
         fixed(y) + ") rotate(-90)'>" + label + "</text>";
}

// Of two overlapping operations, the first takes the upper half of the row and the second takes the lower
// half.
std::string box(const PipelinePlan& plan, const PipelineSpan& span, double scale, double y, int half) {
  const double x = kLeft + span.start * scale;
  const double width = (span.end - span.start) * scale;
  const double height = half == 0 ? kRow - kGap : (kRow - kGap) / 2;
  const double top = half == 2 ? y + height : y;
  const std::string label = label_of(plan, span.op);
  std::string out =
      "<g>" + rect(x, top, width, height, color_of(span.op)) + " stroke='#fff' stroke-width='0.6'>";
  out += "<title>" + std::string(long_name(span.op.op)) + " of micro-batch " +
         std::to_string(span.op.micro_batch) + ", chunk " + std::to_string(span.op.chunk) + ", stage " +
         std::to_string(span.stage) + "\n" + number_text(span.start) + " to " + number_text(span.end) +
         "</title></rect>";
  out += label_in_box(label, x + width / 2, top + height / 2, width, height);
  return out + "</g>\n";
}

std::string row(const PipelinePlan& plan, const PipelineReport& report, size_t stage, double scale) {
  const double y = kTop + kRow * static_cast<double>(stage);
  const auto& spans = report.timeline[stage];
  std::string out = words(kLeft - 8, y + 15, "end", "stage " + std::to_string(stage));
  out += rect(kLeft, y, report.makespan * scale, kRow - kGap, "#f0f0f0") + "/>\n";
  for (size_t k = 0; k < spans.size(); ++k) {
    const bool is_second = k > 0 && spans[k - 1].op.overlaps;
    out += box(plan, spans[k], scale, y, spans[k].op.overlaps ? 1 : is_second ? 2 : 0);
  }
  const StageReport& seen = report.stages[stage];
  const double idle = report.makespan > 0 ? 100 * (1 - seen.busy / report.makespan) : 0;
  char side[64];
  std::snprintf(side, sizeof side, "idle %.1f %%, holds %lld", idle,
                static_cast<long long>(seen.peak_activations));
  return out + words(kLeft + report.makespan * scale + 8, y + 15, "start", side);
}

// Returns the number of pixels per unit of time. Labels of the shortest operations then fit horizontally,
// unless the picture would become wider than kWidest.
double pixels_per_time(const PipelinePlan& plan, const PipelineReport& report) {
  double shortest = report.makespan;
  for (const auto& spans : report.timeline)
    for (const PipelineSpan& span : spans)
      if (span.end > span.start) shortest = std::min(shortest, span.end - span.start);
  if (report.makespan <= 0) return 1;
  const auto letters = static_cast<double>(
      label_of(plan, {PipeOp::kForward, plan.spec.chunks - 1, plan.spec.micro_batches - 1}).size());
  return std::clamp(report.makespan / shortest * (letters * kLetter + 4), kNarrowest, kWidest) /
         report.makespan;
}

// Returns the kinds of operations that occur in the picture, in the order of the legend.
std::vector<PipeOp> kinds_of(const PipelineReport& report) {
  std::vector<PipeOp> kinds;
  for (const PipeOp op :
       {PipeOp::kForward, PipeOp::kBackward, PipeOp::kBackwardInput, PipeOp::kBackwardWeight}) {
    const bool is_there = std::ranges::any_of(report.timeline, [&](const auto& spans) {
      return std::ranges::any_of(spans, [&](const PipelineSpan& span) { return span.op.op == op; });
    });
    if (is_there) kinds.push_back(op);
  }
  return kinds;
}

std::string legend(double y, const PipelinePlan& plan, const std::vector<PipeOp>& kinds) {
  const bool has_chunks = plan.spec.chunks > 1;
  std::string out;
  double x = kLeft;
  for (const PipeOp op : kinds) {
    out += rect(x, y, 12, 12, color_of({op, 0, 0})) + "/>\n";
    if (has_chunks) out += rect(x += 13, y, 12, 12, color_of({op, 1, 0})) + "/>\n";
    out += words(x + 17, y + 10, "start", long_name(op));
    x += 40 + kLetter * static_cast<double>(std::string(long_name(op)).size());
  }
  if (has_chunks)
    out += words(x, y + 10, "start", plan.spec.chunks > 2 ? "lighter: odd chunks" : "lighter: second chunk");
  return out;
}

// Returns the distance between marks on the time axis: 1, 2 or 5 times a power of ten, and at least `apart`.
double step_of_axis(double apart) {
  const double power = std::pow(10, std::floor(std::log10(apart)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= apart) return factor * power;
  return 10 * power;
}

std::string axis(double y, double makespan, double scale) {
  constexpr double kApart = 80;  // smallest distance between two marks, in pixels
  std::string out = rect(kLeft, y, makespan * scale, 1, "#888") + "/>\n";
  if (makespan <= 0) return out;
  const double step = step_of_axis(kApart / scale);
  for (double mark = 0; mark * step <= makespan * (1 + 1e-9); ++mark) {
    const double x = kLeft + mark * step * scale;
    out += rect(x, y, 1, 5, "#888") + "/>\n" + words(x, y + 16, "middle", number_text(mark * step));
  }
  return out + words(kLeft - 8, y + 16, "end", "time");
}

}  // namespace

std::string draw_svg(const PipelinePlan& plan, const PipelineReport& report) {
  const double scale = pixels_per_time(plan, report);
  const double width = kLeft + report.makespan * scale + kRight;
  const double height = kTop + kRow * static_cast<double>(report.stages.size()) + kBottom;
  std::string out = "<svg xmlns='http://www.w3.org/2000/svg' width='100%' viewBox='0 0 " + fixed(width) +
                    " " + fixed(height) + "' style='max-width:" + fixed(width) +
                    "px' font-family='sans-serif' font-size='" + fixed(kFont) + "'>\n";
  out += rect(0, 0, width, height, "#ffffff") + "/>\n";
  out += "<g font-size='14' font-weight='bold'>" + words(kLeft, 18, "start", title_of(plan)) + "</g>\n";
  out += words(kLeft, 35, "start", summary_of(report));
  for (size_t stage = 0; stage < report.stages.size(); ++stage) out += row(plan, report, stage, scale);
  return out + axis(height - kBottom + 2, report.makespan, scale) +
         legend(height - kBottom + 32, plan, kinds_of(report)) + "</svg>\n";
}

}  // namespace dsc
