// Pictures of what a simulation gives.
#pragma once

#include <string>

#include "pipeline/simulate.hpp"

namespace dsc {

// Numbers as in the public header.
enum class PipePicture : int32_t { kText = 1, kColor = 2, kSvg = 3, kPerfetto = 4 };

// Throws INVALID_ARG for a picture that there is not, OVERFLOW for more operations than anybody can look at.
std::string draw(const PipelinePlan& plan, const PipelineCosts& costs, PipePicture picture);

// The pictures, of a report with its timeline.
std::string draw_text(const PipelinePlan& plan, const PipelineReport& report, bool with_color);
std::string draw_svg(const PipelinePlan& plan, const PipelineReport& report);
std::string draw_perfetto(const PipelinePlan& plan, const PipelineReport& report);

// "F3" for the forward pass of micro-batch 3; in small letters on the second of two chunks, "F1.3" on chunk 1
// of more than two.
std::string label_of(const PipelinePlan& plan, const Compute& op);

// "zb_v: 4 stages x 2 chunks, 8 micro-batches"
std::string title_of(const PipelinePlan& plan);

// "makespan 51, idle 5.9 %, ..."
std::string summary_of(const PipelineReport& report);

// A number with as many digits as are of use.
std::string number_text(double value);

}  // namespace dsc
