// Rules that every accepted schedule must follow, from any source.
#pragma once

#include "pipeline/plan.hpp"

namespace dsc::fuzz {

// Lowers every stage and checks: all passes occur once, messages complete even if every send waits for its
// receive, and a buffer never holds two micro-batches.
void check_lowering(const PipelinePlan& plan);

}  // namespace dsc::fuzz
