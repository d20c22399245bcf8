// Writes the trace event format, which ui.perfetto.dev and chrome://tracing open, with a track per stage and
// a counter of the activations that it holds.
#include "base/json.hpp"
#include "pipeline/draw.hpp"

namespace dsc {
namespace {

// Begins an event of the kind `phase`; the caller adds to it and ends it.
void begin_event(JsonWriter& json, const char* phase) {
  json.begin_object();
  json.key("ph");
  json.text(phase);
  json.key("pid");
  json.integer(0);
}

void write_name(JsonWriter& json, const char* what, const std::string& name) {
  json.key("name");
  json.text(what);
  json.key("args");
  json.begin_object();
  json.key("name");
  json.text(name);
  json.end_object();
}

void write_count(JsonWriter& json, const std::string& stage, double time, int64_t held) {
  begin_event(json, "C");
  json.key("name");
  json.text("activations of " + stage);
  json.key("ts");
  json.number(time);
  json.key("args");
  json.begin_object();
  json.key("held");
  json.integer(held);
  json.end_object();
  json.end_object();
}

void write_span(JsonWriter& json, const PipelinePlan& plan, const PipelineSpan& span, size_t stage) {
  begin_event(json, "X");
  json.key("tid");
  json.integer(static_cast<int64_t>(stage));
  json.key("name");
  json.text(label_of(plan, span.op));
  json.key("cat");
  json.text(pipe_op_name(span.op.op));
  json.key("ts");
  json.number(span.start);
  json.key("dur");
  json.number(span.end - span.start);
  json.key("args");
  json.begin_object();
  json.key("micro_batch");
  json.integer(span.op.micro_batch);
  json.key("chunk");
  json.integer(span.op.chunk);
  json.end_object();
  json.end_object();
}

void write_stage(JsonWriter& json, const PipelinePlan& plan, const PipelineReport& report, size_t stage) {
  const std::string name = "stage " + std::to_string(stage);
  begin_event(json, "M");
  json.key("tid");
  json.integer(static_cast<int64_t>(stage));
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
  json.key("traceEvents");
  json.begin_array();
  begin_event(json, "M");
  write_name(json, "process_name", title_of(plan));
  json.end_object();
  for (size_t stage = 0; stage < report.stages.size(); ++stage) write_stage(json, plan, report, stage);
  json.end_array();
  json.key("displayTimeUnit");
  json.text("ms");
  json.end_object();
  return json.take() + "\n";
}

}  // namespace dsc
