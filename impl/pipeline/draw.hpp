// Pictures of simulated schedules.
#pragma once

#include <string>

#include "pipeline/simulate.hpp"

namespace dsc {

// The values are those of the public header.
enum class PipePicture : int32_t { kText = 1, kColor = 2, kSvg = 3, kPerfetto = 4 };

// Throws INVALID_ARG for an unknown picture, OVERFLOW if there are too many operations for a readable
// picture.
std::string draw(const PipelinePlan& plan, const PipelineCosts& costs, PipePicture picture);

// Draw one kind of picture each. The report must contain a timeline.
std::string draw_text(const PipelinePlan& plan, const PipelineReport& report, bool with_color);
std::string draw_svg(const PipelinePlan& plan, const PipelineReport& report);
std::string draw_perfetto(const PipelinePlan& plan, const PipelineReport& report);

// Returns a label such as "F3" for the forward pass of micro-batch 3. With two chunks, labels of chunk 1 are
// in lower case. With more chunks, labels contain the chunk: "F1.3" for chunk 1.
std::string label_of(const PipelinePlan& plan, const Compute& op);

// Returns a text such as "zb_v: 4 stages x 2 chunks, 8 micro-batches".
std::string title_of(const PipelinePlan& plan);

// Returns a text that begins with the makespan and the idle time, such as "makespan 51, idle 5.9 %, ...".
std::string summary_of(const PipelineReport& report);

// Formats a number with at most 6 significant digits.
std::string number_text(double value);

}  // namespace dsc
