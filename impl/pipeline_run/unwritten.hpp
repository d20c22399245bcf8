// A debugging aid that finds callbacks that do not write all of their results.
#pragma once

#include <string>

#include "pipeline/ir.hpp"
#include "pipeline_run/actions.hpp"

namespace dsc {

// Returns whether DSC_PIPE_DEBUG is 1.
bool checks_unwritten();

// Fills what a callback must write with bytes that are NaN in every floating-point type and -1 in integers.
// These are the outputs of a forward pass, or the gradients of the inputs of a backward pass. Device memory
// is skipped.
void fill_unwritten(const Instruction& instruction, const PipeBuffers& buffers);

// Returns a text such as "did not write output 1" if a tensor with elements is unchanged; empty if all were
// written.
std::string find_unwritten(const Instruction& instruction, const PipeBuffers& buffers);

}  // namespace dsc
