// Before a run, all ranks exchange a description of the run. If the descriptions do not match, all ranks
// throw the same error, and nothing has been sent or computed.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "comm/comm.hpp"

namespace dsc {

// The description that a rank contributes.
struct PipeSignature {
  dsc_result_t code = DSC_OK;  // an error that this rank found in its own arguments
  std::string text;
  std::string schedule;  // must be equal on all ranks
  std::string inputs;    // must equal the outputs of each rank that sends to this one
  std::string outputs;
  std::vector<std::pair<int, int>> edges;  // pairs of sender and receiver, of all ranks
  size_t bytes = 0;                        // memory that the rank needs for activations and gradients
  // Size of the memory that this rank already has from an earlier run.
  size_t held_bytes = 0;
  uint64_t channel = 0;  // id of the channel that this rank has from an earlier run; 0 if it has none
  bool wants_loss = false;
};

// The result of the comparison, which is equal on all ranks.
struct PipeAgreement {
  size_t bytes = 0;         // the largest memory size that any rank needs
  bool fresh = false;       // true if channels and memory must be made again
  bool wants_loss = false;  // true if any rank wants the mean loss
};

// Collective. Throws the same error on all ranks.
PipeAgreement agree(Comm& comm, const PipeSignature& signature);

}  // namespace dsc
