// Schedules from tables of operations: every accepted schedule can be run, with both positions of messages.
#include <memory>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "fuzz.hpp"
#include "pipeline/catalog.hpp"
#include "schedules.hpp"

namespace dsc::fuzz {
namespace {

constexpr size_t kMostOperations = 1024;

// Each byte of the input is one operation: three bits for its kind (6 and 7: go to the next stage), one bit
// for a pair, two bits each for the chunk and the micro-batch.
std::vector<StageOrder> orders_of(Input& input, int32_t stages) {
  std::vector<StageOrder> orders(static_cast<size_t>(stages));
  size_t stage = 0;
  for (size_t k = 0; k < kMostOperations && !input.empty() && stage < orders.size(); ++k) {
    const uint8_t byte = input.byte();
    const int op = byte & 7;
    if (op > static_cast<int>(PipeOp::kBackwardWeight)) {
      ++stage;
      continue;
    }
    Compute compute;
    if (op != 0) compute = {static_cast<PipeOp>(op), byte >> 4 & 3, byte >> 6, (byte & 8) != 0};
    orders[stage].push_back(compute);
  }
  return orders;
}

std::shared_ptr<const PipelinePlan> accepted(ScheduleSpec spec, std::vector<StageOrder> orders,
                                             PlacementShape shape) {
  try {
    complete_custom(spec);
    return make_custom(std::move(spec), std::move(orders), shape);
  } catch (const Error& error) {
    FUZZ_REQUIRE(error.code() == DSC_ERR_INVALID_ARG || error.code() == DSC_ERR_OVERFLOW);
    FUZZ_REQUIRE(*error.what() != '\0');
    return nullptr;
  }
}

}  // namespace

// The input has stages, micro-batches, chunks, flags, and the table.
void fuzz_schedule_table(Bytes bytes) {
  Input input(bytes);
  ScheduleSpec spec;
  spec.stages = static_cast<int32_t>(1 + input.below(4));
  spec.micro_batches = static_cast<int32_t>(1 + input.below(4));
  spec.chunks = static_cast<int32_t>(input.below(4));
  const uint8_t flags = input.byte();
  const auto shape = static_cast<PlacementShape>((flags & 3) % 3);
  spec.forward_only = (flags & 4) != 0;
  spec.merge_backward = (flags & 8) != 0;
  spec.messages = (flags & 16) != 0 ? PipeMessages::kAtOnce : PipeMessages::kWhenNeeded;
  const auto orders = orders_of(input, spec.stages);
  const auto plan = accepted(spec, orders, shape);
  spec.messages = spec.messages == PipeMessages::kAtOnce ? PipeMessages::kWhenNeeded : PipeMessages::kAtOnce;
  const auto other = accepted(spec, orders, shape);
  FUZZ_REQUIRE((plan == nullptr) == (other == nullptr));
  if (!plan) return;
  check_lowering(*plan);
  check_lowering(*other);
}

}  // namespace dsc::fuzz
