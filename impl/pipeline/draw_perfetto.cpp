// Writes the trace event format, which ui.perfetto.dev and chrome://tracing open, with a track per stage and
// a counter of the activations that it holds.
#include <nlohmann/json.hpp>

#include "pipeline/draw.hpp"

namespace dsc {
namespace {

using Json = nlohmann::ordered_json;

void add_stage(Json& events, const PipelinePlan& plan, const PipelineReport& report, size_t stage) {
  const std::string name = "stage " + std::to_string(stage);
  events.push_back(
      {{"ph", "M"}, {"pid", 0}, {"tid", stage}, {"name", "thread_name"}, {"args", {{"name", name}}}});
  int64_t held = 0;
  const auto count = [&](double time, int64_t change) {
    held += change;
    events.push_back({{"ph", "C"},
                      {"pid", 0},
                      {"name", "activations of " + name},
                      {"ts", time},
                      {"args", {{"held", held}}}});
  };
  for (const PipelineSpan& span : report.timeline[stage]) {
    events.push_back({{"ph", "X"},
                      {"pid", 0},
                      {"tid", stage},
                      {"name", label_of(plan, span.op)},
                      {"cat", pipe_op_name(span.op.op)},
                      {"ts", span.start},
                      {"dur", span.end - span.start},
                      {"args", {{"micro_batch", span.op.micro_batch}, {"chunk", span.op.chunk}}}});
    if (span.op.op == PipeOp::kForward) count(span.start, 1);
    if (runs_weight_half(span.op.op) || plan.spec.forward_only) count(span.end, -1);
  }
}

}  // namespace

std::string draw_perfetto(const PipelinePlan& plan, const PipelineReport& report) {
  Json events = Json::array();
  events.push_back({{"ph", "M"}, {"pid", 0}, {"name", "process_name"}, {"args", {{"name", title_of(plan)}}}});
  for (size_t stage = 0; stage < report.stages.size(); ++stage) add_stage(events, plan, report, stage);
  const Json all{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
  return all.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace dsc
