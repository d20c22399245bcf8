#include <algorithm>
#include <cstdio>

#include "pipeline/draw.hpp"

namespace dsc {
namespace {

constexpr double kLeft = 70, kTop = 46, kRow = 26, kGap = 4, kRight = 130, kBottom = 34;
constexpr double kLetter = 6.2;  // width of one at the size of the labels

const char* color_of(const Compute& op) {
  const bool odd = op.chunk % 2 == 1;
  switch (op.op) {
    case PipeOp::kForward:
      return odd ? "#a9c8ea" : "#5b8fd0";
    case PipeOp::kBackwardWeight:
      return odd ? "#f8d49a" : "#eda63b";
    default:
      return odd ? "#b4dda6" : "#6cb356";
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

// The lower of two that run at once takes the lower half.
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
  if (width > kLetter * static_cast<double>(label.size()) + 2)
    out += "<text x='" + fixed(x + width / 2) + "' y='" + fixed(top + height / 2 + 3.6) +
           "' text-anchor='middle' pointer-events='none'>" + label + "</text>";
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

// So wide that labels of the shortest operations fit, within reason.
double pixels_per_time(const PipelinePlan& plan, const PipelineReport& report) {
  double shortest = report.makespan;
  for (const auto& spans : report.timeline)
    for (const PipelineSpan& span : spans)
      if (span.end > span.start) shortest = std::min(shortest, span.end - span.start);
  if (report.makespan <= 0) return 1;
  const auto letters = static_cast<double>(
      label_of(plan, {PipeOp::kForward, plan.spec.chunks - 1, plan.spec.micro_batches - 1}).size());
  return std::clamp(report.makespan / shortest * (letters * kLetter + 4), 600.0, 12000.0) / report.makespan;
}

std::string legend(double y, bool has_halves) {
  std::string out;
  double x = kLeft;
  for (const PipeOp op :
       {PipeOp::kForward, has_halves ? PipeOp::kBackwardInput : PipeOp::kBackward, PipeOp::kBackwardWeight}) {
    if (op == PipeOp::kBackwardWeight && !has_halves) break;
    out += rect(x, y, 12, 12, color_of({op, 0, 0})) + "/>\n" + words(x + 17, y + 10, "start", long_name(op));
    x += 40 + kLetter * static_cast<double>(std::string(long_name(op)).size());
  }
  return out;
}

}  // namespace

std::string draw_svg(const PipelinePlan& plan, const PipelineReport& report) {
  const double scale = pixels_per_time(plan, report);
  const double width = kLeft + report.makespan * scale + kRight;
  const double height = kTop + kRow * static_cast<double>(report.stages.size()) + kBottom;
  std::string out = "<svg xmlns='http://www.w3.org/2000/svg' width='" + fixed(width) + "' height='" +
                    fixed(height) + "' viewBox='0 0 " + fixed(width) + " " + fixed(height) +
                    "' font-family='sans-serif' font-size='11'>\n";
  out += rect(0, 0, width, height, "#ffffff") + "/>\n";
  out += "<g font-size='14' font-weight='bold'>" + words(kLeft, 18, "start", title_of(plan)) + "</g>\n";
  out += words(kLeft, 35, "start", summary_of(report));
  bool has_halves = false;
  for (size_t stage = 0; stage < report.stages.size(); ++stage) {
    out += row(plan, report, stage, scale);
    for (const PipelineSpan& span : report.timeline[stage])
      has_halves = has_halves || span.op.op == PipeOp::kBackwardWeight;
  }
  return out + legend(height - kBottom + 10, has_halves) + "</svg>\n";
}

}  // namespace dsc
