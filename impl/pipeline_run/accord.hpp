// Before a run all ranks tell each other what they are about to do. If anything does not fit, all of them
// fail alike, and nothing has happened.
#pragma once

#include <cstddef>
#include <string>

#include "comm/comm.hpp"

namespace dsc {

struct PipeIntent {
  dsc_result_t code = DSC_OK;  // what is wrong on this rank alone
  std::string text;
  std::string schedule;  // must be equal on all ranks
  std::string inputs;    // must equal the outputs of the rank before, where that rank sends
  std::string outputs;
  size_t bytes = 0;   // of memory for activations and gradients
  bool fresh = true;  // this rank has no channels and memory for this yet
};

struct PipeAccord {
  size_t bytes;  // the most that a rank needs
  bool fresh;    // some rank has nothing yet
};

// Collective. Throws the same error on all ranks.
PipeAccord agree(Comm& comm, const PipeIntent& intent);

}  // namespace dsc
