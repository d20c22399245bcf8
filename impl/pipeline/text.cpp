#include "pipeline/text.hpp"

#include "base/error.hpp"

namespace dsc {
namespace {

constexpr int64_t kMostWritten = int64_t{1} << 22;

[[noreturn]] void refuse_format(PipeFormat format) {
  fail(DSC_ERR_INVALID_ARG, "format is %d, expected 1 (pytorch) to %d (json)", static_cast<int>(format),
       static_cast<int>(PipeFormat::kJson));
}

}  // namespace

std::string write_schedule(const PipelinePlan& plan, PipeFormat format) {
  plan.expect_order();
  int64_t operations = 0;
  for (int32_t stage = 0; stage < plan.spec.stages; ++stage) operations += plan.order->size(stage);
  if (operations > kMostWritten)
    fail(DSC_ERR_OVERFLOW, "the schedule has %lld operations, expected at most %lld for a text",
         static_cast<long long>(operations), static_cast<long long>(kMostWritten));
  if (plan.placement.shape() == PlacementShape::kApart && format != PipeFormat::kJson)
    fail(DSC_ERR_INVALID_ARG, "schedule \"%s\" has the placement apart, which only the format json supports",
         plan.spec.name.c_str());
  switch (format) {
    case PipeFormat::kPyTorchCompute:
      return write_pytorch(plan, false);
    case PipeFormat::kPyTorchComms:
      return write_pytorch(plan, true);
    case PipeFormat::kDeepSpeedSteps:
      return write_deepspeed(plan);
    case PipeFormat::kMegatronOrder:
      return write_megatron(plan);
    case PipeFormat::kJson:
      return write_json(plan);
  }
  refuse_format(format);
}

std::shared_ptr<const PipelinePlan> read_schedule(std::string_view text, PipeFormat format) {
  switch (format) {
    case PipeFormat::kPyTorchCompute:
      return read_pytorch(text, false);
    case PipeFormat::kPyTorchComms:
      return read_pytorch(text, true);
    case PipeFormat::kDeepSpeedSteps:
      return read_deepspeed(text);
    case PipeFormat::kMegatronOrder:
      return read_megatron(text);
    case PipeFormat::kJson:
      return read_json(text);
  }
  refuse_format(format);
}

}  // namespace dsc
