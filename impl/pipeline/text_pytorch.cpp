// The CSV files of torch.distributed.pipelining (PyTorch 2.7, and OVERLAP_F_B of its main branch). There is a
// row per rank and a cell per step. For example, 2F0 is the forward pass of micro-batch 0 on stage 2 of the
// model. An empty cell means that the rank is idle in that step.
#include <array>
#include <cctype>

#include "base/error.hpp"
#include "pipeline/imported.hpp"
#include "pipeline/text.hpp"
#include "pipeline/text_reader.hpp"

namespace dsc {
namespace {

// An operation and PyTorch's name for it.
struct Action {
  std::string_view text;
  PipeOp op;
};

// The names are tried in this order. No name is a prefix of a later one, so the first match is right.
constexpr std::array kActions{Action{"SEND_F", PipeOp::kSendActivation},
                              Action{"RECV_F", PipeOp::kRecvActivation},
                              Action{"SEND_B", PipeOp::kSendGrad},
                              Action{"RECV_B", PipeOp::kRecvGrad},
                              Action{"F", PipeOp::kForward},
                              Action{"B", PipeOp::kBackward},
                              Action{"I", PipeOp::kBackwardInput},
                              Action{"W", PipeOp::kBackwardWeight}};
constexpr std::string_view kPair = "OVERLAP_F_B";

std::string_view action_word(PipeOp op) {
  for (const Action& word : kActions)
    if (word.op == op) return word.text;
  return "";
}

// ---- writing ----

std::string cell(const Placement& placement, int32_t stage, const Compute& op) {
  if (op.op == kIdle) return "";
  return std::to_string(placement.part(stage, op.chunk)).append(action_word(op.op)) +
         std::to_string(op.micro_batch);
}

// Adds the cell of one operation, or of two overlapping operations. Returns the number of operations in the
// cell.
size_t add_cell(std::string& row, const Placement& placement, int32_t stage, const Compute& first,
                const Compute* second) {
  if (!first.overlaps || !second) {
    row += cell(placement, stage, first);
    return 1;
  }
  row += "(" + cell(placement, stage, first) + ";" + cell(placement, stage, *second) + ")";
  row += kPair;
  return 2;
}

std::string computes(const PipelinePlan& plan) {
  plan.expect_order();
  std::string text;
  for (int32_t stage = 0; stage < plan.spec.stages; ++stage) {
    const int64_t size = plan.order->size(stage);
    for (int64_t k = 0; k < size;) {
      if (k > 0) text += ',';
      const Compute first = plan.order->at(stage, k);
      const Compute second = k + 1 < size ? plan.order->at(stage, k + 1) : Compute{};
      k += static_cast<int64_t>(
          add_cell(text, plan.placement, stage, first, k + 1 < size ? &second : nullptr));
    }
    text += '\n';
  }
  return text;
}

std::string everything(const PipelinePlan& plan) {
  std::string text;
  const Program program = program_of(plan);
  for (size_t s = 0; s < program.size(); ++s) {
    const auto& events = program[s].events;
    for (size_t k = 0; k < events.size();) {
      if (k > 0) text += ',';
      k += add_cell(text, plan.placement, static_cast<int32_t>(s), events[k].op,
                    k + 1 < events.size() ? &events[k + 1].op : nullptr);
    }
    text += '\n';
  }
  return text;
}

// ---- reading ----

// Reads PyTorch's format.
class Csv {
 public:
  Csv(std::string_view text, bool with_messages) : reader_(text), with_messages_(with_messages) {
    imported_.has_messages = with_messages;
  }

  const Imported& read() {
    while (!reader_.at_end() && !(reader_.only_blank() && !imported_.stages.empty())) {
      expect_cells();
      imported_.stages.emplace_back();
      steps_ = 0;
      do cells();
      while (reader_.take(","));
      imported_.steps.push_back(steps_);
      reader_.next_line();
    }
    return imported_;
  }

 private:
  // PyTorch reads an empty line as a rank without operations. Every rank has some, so an empty line is an
  // error here. Empty lines after the last rank are allowed.
  void expect_cells() {
    reader_.skip_spaces();
    if (reader_.at_end_of_line() && !reader_.only_blank())
      reader_.refuse("the operations of a rank: lines may be empty after the last one");
  }

  void cells() {
    reader_.skip_spaces();
    if (reader_.peek() == ',' || reader_.at_end_of_line()) {
      if (with_messages_) reader_.refuse("an action: with communication, no cell may be empty");
      add({});
    } else if (reader_.take("(")) {
      ImportedOp first = action();
      first.event.op.overlaps = true;
      add(first);
      reader_.expect(";");
      add(action());
      reader_.expect(")");
      reader_.expect(kPair);
    } else {
      add(action());
    }
    ++steps_;
    reader_.skip_spaces();
  }

  void add(ImportedOp op) {
    op.event.step = steps_;
    op.line = reader_.line();
    imported_.stages.back().push_back(op);
  }

  ImportedOp action() {
    ImportedOp op;
    if (!std::isdigit(static_cast<unsigned char>(reader_.peek())))
      reader_.refuse("[stage][action][micro-batch], as in 2F0");
    op.part = reader_.number();
    op.event.op.op = word();
    op.event.op.micro_batch = reader_.number();
    return op;
  }

  PipeOp word() {
    for (const Action& word : kActions) {
      const bool is_message = is_send(word.op) || is_recv(word.op);
      if (is_message && !with_messages_) continue;
      if (reader_.take(word.text)) return word.op;
    }
    reader_.refuse(with_messages_ ? "F, B, I, W, SEND_F, RECV_F, SEND_B or RECV_B"
                                  : "F, B, I or W; with sends and receives it is another format");
  }

  TextReader reader_;
  const bool with_messages_;
  int64_t steps_ = 0;
  Imported imported_;
};

}  // namespace

std::string write_pytorch(const PipelinePlan& plan, bool with_messages) {
  return with_messages ? everything(plan) : computes(plan);
}

std::shared_ptr<const PipelinePlan> read_pytorch(std::string_view text, bool with_messages) {
  return plan_of(Csv(text, with_messages).read());
}

}  // namespace dsc
