#include "pipeline/draw.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>

#include "base/error.hpp"

namespace dsc {
namespace {

constexpr int64_t kMostDrawn = 200'000;
constexpr int32_t kMostRows = 4'096;
constexpr double kShortestDrawn = 1e-200;

void check_size(const PipelinePlan& plan) {
  plan.expect_order();
  if (plan.spec.stages > kMostRows)
    fail(DSC_ERR_OVERFLOW, "the schedule has %d stages, expected at most %d for a picture", plan.spec.stages,
         kMostRows);
  int64_t operations = 0;
  for (int32_t stage = 0; stage < plan.spec.stages; ++stage) operations += plan.order->size(stage);
  if (operations > kMostDrawn)
    fail(DSC_ERR_OVERFLOW, "the schedule has %lld operations, expected at most %lld for a picture",
         static_cast<long long>(operations), static_cast<long long>(kMostDrawn));
}

char letter_of(PipeOp op) {
  switch (op) {
    case PipeOp::kForward:
      return 'F';
    case PipeOp::kBackwardInput:
      return 'I';
    case PipeOp::kBackwardWeight:
      return 'W';
    default:
      return 'B';
  }
}

}  // namespace

std::string label_of(const PipelinePlan& plan, const Compute& op) {
  std::string label(1, letter_of(op.op));
  if (plan.spec.chunks == 2 && op.chunk == 1)
    label[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(label[0])));
  if (plan.spec.chunks > 2) label += std::to_string(op.chunk) + ".";
  return label + std::to_string(op.micro_batch);
}

std::string title_of(const PipelinePlan& plan) {
  std::string title = plan.spec.name + ": " + std::to_string(plan.spec.stages) + " stages";
  if (plan.spec.chunks > 1) title += " x " + std::to_string(plan.spec.chunks) + " chunks";
  return title + ", " + std::to_string(plan.spec.micro_batches) + " micro-batches";
}

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string summary_of(const PipelineReport& report) {
  double busy = 0;
  double own_window = 0;
  int64_t peak = 0;
  for (const StageReport& stage : report.stages) {
    busy += stage.busy;
    own_window = std::max(own_window, stage.end - stage.start - stage.busy);
    peak = std::max(peak, stage.peak_activations);
  }
  const double all = report.makespan * static_cast<double>(report.stages.size());
  char idle[32];
  std::snprintf(idle, sizeof idle, "%.1f %%", all > 0 ? 100 * (1 - busy / all) : 0.0);
  return "makespan " + number_text(report.makespan) + ", idle " + idle + "; a stage idles at most " +
         number_text(own_window) + " between its first and last operation, and holds at most " +
         std::to_string(peak) + " activations";
}

std::string draw(const PipelinePlan& plan, const PipelineCosts& costs, PipePicture picture) {
  if (picture < PipePicture::kText || picture > PipePicture::kPerfetto)
    fail(DSC_ERR_INVALID_ARG, "picture is %d, expected 1 (text) to 4 (perfetto)", static_cast<int>(picture));
  check_size(plan);
  const PipelineReport report = simulate(plan, costs, {.timeline = true});
  if (report.makespan > 0 && report.makespan < kShortestDrawn)
    fail(DSC_ERR_INVALID_ARG, "the makespan is %g, expected 0, or at least %g for a picture", report.makespan,
         kShortestDrawn);
  if (picture == PipePicture::kSvg) return draw_svg(plan, report);
  if (picture == PipePicture::kPerfetto) return draw_perfetto(plan, report);
  return draw_text(plan, report, picture == PipePicture::kColor);
}

}  // namespace dsc
