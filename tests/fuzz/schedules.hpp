// What must hold of every schedule that is accepted, whoever made it.
#pragma once

#include "pipeline/plan.hpp"

namespace dsc::fuzz {

// Lowers every stage: all passes once, messages that complete even when every send waits for its receive, and
// no two micro-batches in a buffer at once.
void check_lowering(const PipelinePlan& plan);

}  // namespace dsc::fuzz
