// DeepSpeed's instructions (deepspeed/runtime/pipe/schedule.py, commit edaa722). A line names the stage, and
// a line per step follows:
//   stage 0
//   step 0: LoadMicroBatch(buffer_id=0), ForwardPass(buffer_id=0)
// Micro-batches are not named, because instructions of the same kind on a stage take them in ascending order.
#include <array>
#include <map>

#include "base/error.hpp"
#include "pipeline/catalog.hpp"
#include "pipeline/imported.hpp"
#include "pipeline/text.hpp"
#include "pipeline/text_reader.hpp"

namespace dsc {
namespace {

// An instruction and DeepSpeed's name for it.
struct Word {
  std::string_view text;
  PipeOp op;
};

constexpr std::array kWords{Word{"LoadMicroBatch", PipeOp::kLoadMicroBatch},
                            Word{"ForwardPass", PipeOp::kForward},
                            Word{"BackwardPass", PipeOp::kBackward},
                            Word{"SendActivation", PipeOp::kSendActivation},
                            Word{"RecvActivation", PipeOp::kRecvActivation},
                            Word{"SendGrad", PipeOp::kSendGrad},
                            Word{"RecvGrad", PipeOp::kRecvGrad},
                            Word{"ReduceTiedGrads", PipeOp::kReduceTiedGrads},
                            Word{"ReduceGrads", PipeOp::kReduceGrads},
                            Word{"OptimizerStep", PipeOp::kOptimizerStep}};

bool ends_batch(PipeOp op) {
  return op == PipeOp::kReduceTiedGrads || op == PipeOp::kReduceGrads || op == PipeOp::kOptimizerStep;
}

std::string_view word_of(const PipelinePlan& plan, PipeOp op) {
  for (const Word& word : kWords)
    if (word.op == op) return word.text;
  fail(DSC_ERR_INVALID_ARG, "schedule \"%s\" has %s, which DeepSpeed has no instruction for",
       plan.spec.name.c_str(), pipe_op_name(op));
}

void check_rising(const PipelinePlan& plan, std::map<PipeOp, int32_t>& next, const Instruction& it) {
  if (int32_t& expected = next[it.op]; it.micro_batch != expected++)
    fail(DSC_ERR_INVALID_ARG,
         "schedule \"%s\": %s comes to micro-batch %d before %d, expected rising order: DeepSpeed's "
         "instructions do not name micro-batches",
         plan.spec.name.c_str(), pipe_op_name(it.op), it.micro_batch, expected - 1);
}

void write_stage(const PipelinePlan& plan, int32_t stage, std::string& text) {
  const auto schedule = instructions_of(plan, stage);
  std::map<PipeOp, int32_t> next;
  text += "stage " + std::to_string(stage) + "\n";
  Instruction it;
  bool more = schedule->next(it);
  for (int64_t step = 0; step < schedule->steps(); ++step) {
    text += "step " + std::to_string(step) + ":";
    for (const char* between = " "; more && it.step == step; more = schedule->next(it), between = ", ") {
      text.append(between).append(word_of(plan, it.op));
      if (it.buffer < 0) continue;
      check_rising(plan, next, it);
      text += "(buffer_id=" + std::to_string(it.buffer) + ")";
    }
    text += '\n';
  }
}

// Reads DeepSpeed's format.
class Steps {
 public:
  explicit Steps(std::string_view text) : reader_(text) { imported_.has_messages = true; }

  const Imported& read() {
    while (!reader_.at_end()) {
      reader_.skip_spaces();
      if (reader_.take("stage"))
        begin_stage();
      else if (reader_.take("step"))
        step();
      else
        reader_.refuse("\"stage\" or \"step\"");
      reader_.next_line();
    }
    return imported_;
  }

 private:
  void begin_stage() {
    reader_.skip_spaces();
    if (const auto expected = imported_.stages.size(); static_cast<size_t>(reader_.number()) != expected)
      fail(DSC_ERR_INVALID_ARG, "line %zu: expected stage %zu next", reader_.line(), expected);
    imported_.stages.emplace_back();
    imported_.steps.push_back(0);
    next_.clear();
  }

  void step() {
    if (imported_.stages.empty()) reader_.refuse("\"stage\" first");
    reader_.skip_spaces();
    int64_t& steps = imported_.steps.back();
    if (reader_.number() != steps)
      fail(DSC_ERR_INVALID_ARG, "line %zu: expected step %lld next", reader_.line(),
           static_cast<long long>(steps));
    reader_.skip_spaces();
    reader_.expect(":");
    reader_.skip_spaces();
    if (!reader_.at_end_of_line()) {
      do instruction(steps);
      while (reader_.take(","));
    }
    ++steps;
  }

  void instruction(int64_t step) {
    reader_.skip_spaces();
    const PipeOp op = word();
    if (ends_batch(op)) return reader_.skip_spaces();
    reader_.expect("(buffer_id=");
    const int32_t buffer = reader_.number();
    reader_.expect(")");
    reader_.skip_spaces();
    // Every forward pass of the first and last stage has a load, so loads carry no information.
    if (op == PipeOp::kLoadMicroBatch) return;
    ImportedOp imported;
    imported.event = {{op, 0, next_[op]++, false}, step, buffer};
    imported.part = static_cast<int32_t>(imported_.stages.size()) - 1;
    imported.line = reader_.line();
    imported_.stages.back().push_back(imported);
  }

  PipeOp word() {
    for (const Word& word : kWords)
      if (reader_.take(word.text)) return word.op;
    reader_.refuse("one of DeepSpeed's instructions, such as ForwardPass(buffer_id=0)");
  }

  TextReader reader_;
  std::map<PipeOp, int32_t> next_;  // for each kind of operation, the next micro-batch of the current stage
  Imported imported_;
};

}  // namespace

std::string write_deepspeed(const PipelinePlan& plan) {
  if (plan.spec.chunks > 1)
    fail(DSC_ERR_INVALID_ARG, "schedule \"%s\" has %d chunks, expected 1 for DeepSpeed's instructions",
         plan.spec.name.c_str(), plan.spec.chunks);
  std::string text;
  for (int32_t stage = 0; stage < plan.spec.stages; ++stage) write_stage(plan, stage, text);
  return text;
}

std::shared_ptr<const PipelinePlan> read_deepspeed(std::string_view text) {
  return plan_of(Steps(text).read());
}

}  // namespace dsc
