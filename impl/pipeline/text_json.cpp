// A schedule as JSON. Nothing is lost when it is written and read again. docs/schedules.md describes the
// format.
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/json.hpp"
#include "pipeline/imported.hpp"
#include "pipeline/text.hpp"

namespace dsc {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "libdsc pipeline schedule";
constexpr int kVersion = 1;
constexpr int kMostNested = 16;

constexpr const char* kShapes[] = {"loop", "zigzag", "apart"};

// ---- writing ----

void write_operation(JsonWriter& json, const Compute& op) {
  if (op.op == kIdle) return json.null();
  json.begin_array();
  json.text(pipe_op_name(op.op));
  json.integer(op.chunk);
  json.integer(op.micro_batch);
  if (op.overlaps) json.text("overlaps");
  json.end_array();
}

void write_orders(JsonWriter& json, const PipelinePlan& plan) {
  json.begin_array("orders");
  for (int32_t stage = 0; stage < plan.spec.stages; ++stage) {
    json.begin_array();
    for (int64_t k = 0; k < plan.order->size(stage); ++k) write_operation(json, plan.order->at(stage, k));
    json.end_array();
  }
  json.end_array();
}

void write_event(JsonWriter& json, const Event& event) {
  json.begin_object();
  json.key("op");
  write_operation(json, event.op);
  json.field("step", event.step);
  json.field("buffer", event.buffer);
  json.end_object();
}

void write_programs(JsonWriter& json, const Program& program) {
  json.begin_array("programs");
  for (const StageProgram& stage : program) {
    json.begin_object();
    json.field("steps", stage.steps);
    json.begin_array("events");
    for (const Event& event : stage.events) write_event(json, event);
    json.end_array();
    json.end_object();
  }
  json.end_array();
}

void write_spec(JsonWriter& json, const PipelinePlan& plan) {
  json.field("name", plan.spec.name);
  json.field("stages", plan.spec.stages);
  json.field("chunks", plan.spec.chunks);
  json.field("micro_batches", plan.spec.micro_batches);
  json.field("micro_batch_group", plan.spec.micro_batch_group);
  json.field("placement", kShapes[static_cast<size_t>(plan.placement.shape())]);
  json.field("forward_only", plan.spec.forward_only);
  json.field("messages", plan.spec.messages == PipeMessages::kAtOnce ? "at_once" : "when_needed");
}

// ---- reading ----

[[noreturn]] void refuse(const std::string& where, const Json& json, const char* expected) {
  // Lists and objects are only described, because printing JSON is recursive and they may be nested deeply.
  const std::string shown = json.is_array() ? "a list of " + std::to_string(json.size())
                            : json.is_object()
                                ? "an object"
                                : json.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 64);
  fail(DSC_ERR_INVALID_ARG, "%s is %s, expected %s", where.c_str(), shown.c_str(), expected);
}

const Json& member(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) fail(DSC_ERR_INVALID_ARG, "\"%s\" is missing", name);
  return *found;
}

int64_t integer(const std::string& where, const Json& json, int64_t least, int64_t most) {
  const std::string expected = "a whole number from " + std::to_string(least) + " to " + std::to_string(most);
  const bool fits =
      json.is_number_integer() && !(json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX);
  if (!fits || json.get<int64_t>() < least || json.get<int64_t>() > most)
    refuse(where, json, expected.c_str());
  return json.get<int64_t>();
}

int32_t count(const Json& object, const char* name, int32_t least) {
  return static_cast<int32_t>(integer(name, member(object, name), least, INT32_MAX));
}

const Json& list(const std::string& where, const Json& json) {
  if (!json.is_array()) refuse(where, json, "a list");
  return json;
}

PipeOp op_of(const std::string& where, const Json& json, PipeOp most) {
  if (json.is_string())
    for (int32_t op = static_cast<int32_t>(PipeOp::kForward); op <= static_cast<int32_t>(most); ++op)
      if (json.get_ref<const std::string&>() == pipe_op_name(op)) return static_cast<PipeOp>(op);
  refuse(where, json, "the name of an operation");
}

Compute compute_of(const std::string& where, const Json& json, PipeOp most) {
  if (json.is_null() && most == PipeOp::kBackwardWeight) return {};
  const bool fits = json.is_array() && (json.size() == 3 || (json.size() == 4 && json[3] == "overlaps"));
  if (!fits) refuse(where, json, "[operation, chunk, micro-batch]");
  return {op_of(where + "[0]", json[0], most),
          static_cast<int32_t>(integer(where + "[1]", json[1], 0, INT32_MAX)),
          static_cast<int32_t>(integer(where + "[2]", json[2], 0, INT32_MAX)), json.size() == 4};
}

std::shared_ptr<const ComputeOrder> read_orders(const Json& json) {
  std::vector<StageOrder> stages;
  for (const Json& row : list("orders", json)) {
    const std::string where = "orders[" + std::to_string(stages.size()) + "]";
    StageOrder order;
    for (const Json& op : list(where, row))
      order.push_back(
          compute_of(where + "[" + std::to_string(order.size()) + "]", op, PipeOp::kBackwardWeight));
    stages.push_back(std::move(order));
  }
  return std::make_shared<ListedOrder>(std::move(stages));
}

StageProgram read_program(const std::string& where, const Json& json) {
  if (!json.is_object()) refuse(where, json, "an object");
  StageProgram stage;
  stage.steps = integer(where + ".steps", member(json, "steps"), 1, INT32_MAX);
  int64_t step = 0;
  for (const Json& event : list(where + ".events", member(json, "events"))) {
    const std::string path = where + ".events[" + std::to_string(stage.events.size()) + "]";
    if (!event.is_object()) refuse(path, event, "an object");
    const Compute op = compute_of(path + ".op", member(event, "op"), PipeOp::kRecvGrad);
    step = integer(path + ".step", member(event, "step"), step, stage.steps - 1);
    const auto buffer =
        static_cast<int32_t>(integer(path + ".buffer", member(event, "buffer"), -1, INT32_MAX - 1));
    stage.events.push_back({op, step, buffer});
  }
  return stage;
}

Program read_programs(const Json& json) {
  Program program;
  for (const Json& stage : list("programs", json))
    program.push_back(read_program("programs[" + std::to_string(program.size()) + "]", stage));
  return program;
}

PlacementShape shape_of(const Json& json) {
  if (json.is_string())
    for (size_t i = 0; i < std::size(kShapes); ++i)
      if (json.get_ref<const std::string&>() == kShapes[i]) return static_cast<PlacementShape>(i);
  refuse("placement", json, "\"loop\", \"zigzag\" or \"apart\"");
}

ScheduleSpec spec_of(const Json& json) {
  const Json& name = member(json, "name");
  const Json& forward_only = member(json, "forward_only");
  if (!name.is_string() || name.get_ref<const std::string&>().find('\0') != std::string::npos)
    refuse("name", name, "a string without NUL characters");
  if (!forward_only.is_boolean()) refuse("forward_only", forward_only, "true or false");
  ScheduleSpec spec{.name = name.get<std::string>(),
                    .stages = count(json, "stages", 1),
                    .micro_batches = count(json, "micro_batches", 1),
                    .chunks = count(json, "chunks", 1),
                    .micro_batch_group = count(json, "micro_batch_group", 0),
                    .forward_only = forward_only.get<bool>()};
  if (const Json& messages = member(json, "messages"); messages == "at_once")
    spec.messages = PipeMessages::kAtOnce;
  else if (messages != "when_needed")
    refuse("messages", messages, "\"when_needed\" or \"at_once\"");
  return spec;
}

// Checks that there is an operation for each part and micro-batch. This runs before memory is allocated for
// the numbers in the text, which could be huge.
void check_size(const PipelinePlan& plan, size_t stages) {
  if (stages != static_cast<size_t>(plan.spec.stages))
    fail(DSC_ERR_INVALID_ARG, "there are %zu lists of operations, expected %d: one for each stage", stages,
         plan.spec.stages);
  int64_t operations = 0;
  for (int32_t stage = 0; stage < plan.spec.stages; ++stage) operations += plan.order->size(stage);
  int64_t passes = int64_t{plan.spec.stages} * plan.spec.chunks;
  if (__builtin_mul_overflow(passes, plan.spec.micro_batches, &passes) || operations < passes)
    fail(DSC_ERR_INVALID_ARG,
         "there are %lld operations, expected %d stages x %d chunks x %d micro-batches or more",
         static_cast<long long>(operations), plan.spec.stages, plan.spec.chunks, plan.spec.micro_batches);
}

// Limits the nesting depth, because printing JSON is recursive. The check reads the text directly, because a
// callback of the parser would be slow.
void expect_shallow(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') in_string = !in_string;
    if (in_string && c == '\\') ++i;
    if (in_string) continue;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > kMostNested)
      fail(DSC_ERR_INVALID_ARG, "byte %zu: lists and objects are nested more than %d deep", i, kMostNested);
  }
}

Json parsed(std::string_view text) {
  Json json;
  std::string problem;
  expect_shallow(text);
  capture([&] { json = Json::parse(text); }, [&](dsc_result_t, const char* words) { problem = words; });
  if (!problem.empty()) fail(DSC_ERR_INVALID_ARG, "not valid JSON: %.200s", problem.c_str());
  if (!json.is_object()) refuse("the text", json, "an object");
  return json;
}

}  // namespace

std::string write_json(const PipelinePlan& plan) {
  plan.expect_order();
  JsonWriter json;
  json.begin_object();
  json.field("format", kFormat);
  json.field("version", kVersion);
  write_spec(json, plan);
  if (plan.program || plan.closed_form)
    write_programs(json, program_of(plan));
  else
    write_orders(json, plan);
  json.end_object();
  return json.take() + "\n";
}

std::shared_ptr<const PipelinePlan> read_json(std::string_view text) {
  const Json json = parsed(text);
  if (const Json& format = member(json, "format"); format != kFormat)
    refuse("format", format, "\"libdsc pipeline schedule\"");
  if (const Json& version = member(json, "version"); version != kVersion) refuse("version", version, "1");
  const bool has_programs = json.contains("programs");
  std::shared_ptr<const Program> program;
  if (has_programs) program = std::make_shared<Program>(read_programs(json["programs"]));
  auto order = has_programs ? computes_of(*program) : read_orders(member(json, "orders"));
  const size_t stages = has_programs ? program->size() : json["orders"].size();
  ScheduleSpec spec = spec_of(json);
  if (int64_t{spec.stages} * spec.chunks > INT32_MAX)
    fail(DSC_ERR_INVALID_ARG, "%d stages x %d chunks, expected a product of at most %d", spec.stages,
         spec.chunks, INT32_MAX);
  auto plan =
      std::make_shared<PipelinePlan>(std::move(spec), std::move(order), shape_of(member(json, "placement")));
  plan->program = std::move(program);
  plan->is_custom = true;
  check_size(*plan, stages);
  expect_runs(*plan);
  return plan;
}

}  // namespace dsc
