// Schedules as text, for exchange with other programs.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "pipeline/plan.hpp"

namespace dsc {

// The values are those of the public header.
enum class PipeFormat : int32_t {
  kPyTorchCompute = 1,  // PyTorch's CSV without communication: a row per stage, a cell per step
  kPyTorchComms = 2,    // PyTorch's CSV with sends and receives
  kDeepSpeedSteps = 3,  // DeepSpeed's instructions, one line per step
  kMegatronOrder = 4,   // Megatron's lists of chunk numbers, which are negative for backward passes
  kJson = 5,
};

// Throws INVALID_ARG for a schedule that the format cannot express.
std::string write_schedule(const PipelinePlan& plan, PipeFormat format);

// Throws INVALID_ARG for a malformed text, with line and column, and for a schedule that cannot be run.
std::shared_ptr<const PipelinePlan> read_schedule(std::string_view text, PipeFormat format);

// The individual formats. write_schedule() and read_schedule() choose between them.
std::string write_pytorch(const PipelinePlan& plan, bool with_messages);
std::string write_deepspeed(const PipelinePlan& plan);
std::string write_megatron(const PipelinePlan& plan);
std::string write_json(const PipelinePlan& plan);
std::shared_ptr<const PipelinePlan> read_pytorch(std::string_view text, bool with_messages);
std::shared_ptr<const PipelinePlan> read_deepspeed(std::string_view text);
std::shared_ptr<const PipelinePlan> read_megatron(std::string_view text);
std::shared_ptr<const PipelinePlan> read_json(std::string_view text);

}  // namespace dsc
