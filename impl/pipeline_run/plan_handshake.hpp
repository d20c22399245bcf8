// Before a run all ranks tell each other what they are about to do. If anything does not fit, all of them
// fail alike, and nothing has happened.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "comm/comm.hpp"

namespace dsc {

struct PipeIntent {
  dsc_result_t code = DSC_OK;  // what is wrong on this rank alone
  std::string text;
  std::string schedule;  // must be equal on all ranks
  std::string inputs;    // must equal the outputs of whoever sends to this rank
  std::string outputs;
  std::vector<std::pair<int, int>> edges;  // who sends to whom, of all ranks
  size_t bytes = 0;                        // of memory for activations and gradients
  size_t held_bytes = 0;                   // of it that this rank has from an earlier run
  uint64_t channel = 0;  // id of the channel that this rank has from an earlier run; 0: none
};

struct PipeAccord {
  size_t bytes;  // the most that a rank needs
  bool fresh;    // channels and memory are to be made: some rank has none, or they are not of one run
};

// Collective. Throws the same error on all ranks.
PipeAccord agree(Comm& comm, const PipeIntent& intent);

}  // namespace dsc
