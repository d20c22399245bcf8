// A debugging aid: it finds callbacks that do not write all of their results.
#pragma once

#include <string>

#include "pipeline/ir.hpp"
#include "pipeline_run/actions.hpp"

namespace dsc {

// Returns whether DSC_PIPE_DEBUG is 1.
bool checks_unwritten();

// Fills the tensors that a callback has to write: the outputs of a forward pass, or the gradients of the
// inputs in a backward pass. The bytes are NaN in every floating-point type and -1 in integer types. Device
// memory is skipped.
void fill_unwritten(const Instruction& instruction, const PipeBuffers& buffers);

// Returns a text such as "did not write output 1" if a non-empty tensor is unchanged. Returns an empty text
// if all tensors were written.
std::string find_unwritten(const Instruction& instruction, const PipeBuffers& buffers);

}  // namespace dsc
