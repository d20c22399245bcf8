// A debug switch: finds callbacks that forget to write what they compute.
#pragma once

#include <string>

#include "pipeline/ir.hpp"
#include "pipeline_run/actions.hpp"

namespace dsc {

// Whether DSC_PIPE_DEBUG is 1.
bool checks_unwritten();

// Fills what a callback has to write with bytes that are NaN in every floating-point type and -1 in integers:
// the outputs of a forward pass, the gradients of the inputs of a backward pass. Memory of devices is left
// alone.
void fill_unwritten(const Instruction& instruction, const PipeBuffers& buffers);

// "did not write output 1" if a tensor of more than no elements still holds nothing else; empty if all were
// written.
std::string find_unwritten(const Instruction& instruction, const PipeBuffers& buffers);

}  // namespace dsc
