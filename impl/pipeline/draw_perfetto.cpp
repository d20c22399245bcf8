// Writes the trace event format, which ui.perfetto.dev and chrome://tracing open. Every stage has a track for
// its operations, and a counter for the activations that it holds.
#include "base/json.hpp"
#include "pipeline/draw.hpp"

namespace dsc {
namespace {

// Begins a trace event; `phase` is its type in the format. The caller adds fields and ends the event.
void begin_event(JsonWriter& json, const char* phase) {
  json.begin_object();
  json.field("ph", phase);
  json.field("pid", 0);
}

void write_name(JsonWriter& json, const char* what, const std::string& name) {
  json.field("name", what);
  json.begin_object("args");
  json.field("name", name);
  json.end_object();
}

void write_count(JsonWriter& json, const std::string& stage, double time, int64_t held) {
  begin_event(json, "C");
  json.field("name", "activations of " + stage);
  json.field("ts", time);
  json.begin_object("args");
  json.field("held", held);
  json.end_object();
  json.end_object();
}

void write_span(JsonWriter& json, const PipelinePlan& plan, const PipelineSpan& span, size_t stage) {
  begin_event(json, "X");
  json.field("tid", stage);
  json.field("name", label_of(plan, span.op));
  json.field("cat", pipe_op_name(span.op.op));
  json.field("ts", span.start);
  json.field("dur", span.end - span.start);
  json.begin_object("args");
  json.field("micro_batch", span.op.micro_batch);
  json.field("chunk", span.op.chunk);
  json.end_object();
  json.end_object();
}

void write_stage(JsonWriter& json, const PipelinePlan& plan, const PipelineReport& report, size_t stage) {
  const std::string name = "stage " + std::to_string(stage);
  begin_event(json, "M");
  json.field("tid", stage);
  write_name(json, "thread_name", name);
  json.end_object();
  int64_t held = 0;
  for (const PipelineSpan& span : report.timeline[stage]) {
    write_span(json, plan, span, stage);
    if (span.op.op == PipeOp::kForward) write_count(json, name, span.start, ++held);
    if (runs_weight_half(span.op.op) || plan.spec.forward_only) write_count(json, name, span.end, --held);
  }
}

}  // namespace

std::string draw_perfetto(const PipelinePlan& plan, const PipelineReport& report) {
  JsonWriter json;
  json.begin_object();
  json.begin_array("traceEvents");
  begin_event(json, "M");
  write_name(json, "process_name", title_of(plan));
  json.end_object();
  for (size_t stage = 0; stage < report.stages.size(); ++stage) write_stage(json, plan, report, stage);
  json.end_array();
  json.field("displayTimeUnit", "ms");
  json.end_object();
  return json.take() + "\n";
}

}  // namespace dsc
