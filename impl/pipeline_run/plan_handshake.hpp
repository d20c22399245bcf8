// Before a run all ranks exchange a description of what they are about to do. If the descriptions do not
// match, all ranks throw the same error before anything has been done.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "comm/comm.hpp"

namespace dsc {

// The description that a rank contributes.
struct PipeSignature {
  dsc_result_t code = DSC_OK;  // error of this rank alone
  std::string text;
  std::string schedule;  // must be equal on all ranks
  std::string inputs;    // must equal the outputs of each rank that sends to this one
  std::string outputs;
  std::vector<std::pair<int, int>> edges;  // pairs of sender and receiver, of all ranks
  size_t bytes = 0;                        // memory that the rank needs for activations and gradients
  size_t held_bytes = 0;                   // the part of it that this rank already has from an earlier run
  uint64_t channel = 0;  // id of the channel that this rank has from an earlier run; 0 if it has none
  bool wants_loss = false;
};

// The result of the comparison, which is equal on all ranks.
struct PipeAgreement {
  size_t bytes = 0;  // the most that any rank needs
  bool fresh =
      false;  // channels and memory must be made again: a rank has none, or they come from different runs
  bool wants_loss = false;  // true if some rank wants it
};

// Collective. Throws the same error on all ranks.
PipeAgreement agree(Comm& comm, const PipeSignature& signature);

}  // namespace dsc
