// The order lists of Megatron-LM (get_schedule_table and convert_schedule_table_to_order). Each rank has a
// list with chunk + 1 for a forward pass and -(chunk + 1) for a backward pass. Micro-batches are not named,
// because those of a chunk are in ascending order.
#include <map>
#include <utility>

#include "base/error.hpp"
#include "pipeline/imported.hpp"
#include "pipeline/text.hpp"
#include "pipeline/text_reader.hpp"

namespace dsc {
namespace {

int64_t number_of(const PipelinePlan& plan, int32_t stage, const Compute& op, int32_t expected) {
  const bool is_forward = op.op == PipeOp::kForward;
  if ((!is_forward && op.op != PipeOp::kBackward) || op.overlaps)
    fail(DSC_ERR_INVALID_ARG,
         "schedule \"%s\" has %s, expected only forward and backward: Megatron's lists cannot contain other "
         "operations",
         plan.spec.name.c_str(),
         op.overlaps      ? "overlap"
         : op.op == kIdle ? "idle steps"
                          : pipe_op_name(op.op));
  if (op.micro_batch != expected)
    fail(DSC_ERR_INVALID_ARG,
         "stage %d: %s of chunk %d has micro-batch %d before %d, expected ascending order: Megatron's lists "
         "do not name micro-batches",
         stage, pipe_op_name(op.op), op.chunk, op.micro_batch, expected);
  return is_forward ? int64_t{op.chunk} + 1 : -(int64_t{op.chunk} + 1);
}

}  // namespace

std::string write_megatron(const PipelinePlan& plan) {
  plan.expect_order();
  if (plan.placement.shape() != PlacementShape::kLoop && plan.spec.chunks > 1)
    fail(DSC_ERR_INVALID_ARG,
         "schedule \"%s\" has the placement zigzag or apart, expected loop, as in Megatron",
         plan.spec.name.c_str());
  std::string text;
  for (int32_t stage = 0; stage < plan.spec.stages; ++stage) {
    std::map<std::pair<int32_t, PipeOp>, int32_t> next;
    text += '[';
    for (int64_t k = 0; k < plan.order->size(stage); ++k) {
      const Compute op = plan.order->at(stage, k);
      if (k > 0) text += ", ";
      text += std::to_string(number_of(plan, stage, op, next[{op.chunk, op.op}]++));
    }
    text += "]\n";
  }
  return text;
}

std::shared_ptr<const PipelinePlan> read_megatron(std::string_view text) {
  TextReader reader(text);
  // For each rank and each number in its list, the micro-batch of the next occurrence of that number.
  std::vector<std::map<int32_t, int32_t>> next;
  Imported imported;
  while (!reader.at_end()) {
    imported.stages.emplace_back();
    auto& counts = next.emplace_back();
    reader.skip_spaces();
    reader.expect("[");
    do {
      reader.skip_spaces();
      const bool is_backward = reader.take("-");
      const int32_t number = reader.peek() == '0' ? 0 : reader.number();
      if (number == 0) reader.refuse("a number other than 0: chunk + 1 forward, -(chunk + 1) backward");
      ImportedOp op;
      op.event.op.op = is_backward ? PipeOp::kBackward : PipeOp::kForward;
      op.event.op.micro_batch = counts[is_backward ? -number : number]++;
      op.event.op.chunk = number - 1;
      op.line = reader.line();
      imported.stages.back().push_back(op);
      reader.skip_spaces();
    } while (reader.take(","));
    reader.expect("]");
    reader.next_line();
  }
  const auto ranks = static_cast<int64_t>(imported.stages.size());
  for (size_t rank = 0; rank < imported.stages.size(); ++rank)
    for (ImportedOp& op : imported.stages[rank]) {
      const int64_t part = op.event.op.chunk * ranks + static_cast<int64_t>(rank);
      if (part >= INT32_MAX)
        fail(DSC_ERR_INVALID_ARG, "line %zu: chunk is %d, expected at most %lld for %lld ranks", op.line,
             op.event.op.chunk, static_cast<long long>((INT32_MAX - 1 - static_cast<int64_t>(rank)) / ranks),
             static_cast<long long>(ranks));
      op.part = static_cast<int32_t>(part);
    }
  return plan_of(imported);
}

}  // namespace dsc
