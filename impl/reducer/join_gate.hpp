// The interface between a reducer and a join. The reducer calls it before each of its collective operations.
#pragma once

#include <cstdint>

namespace dsc {

class Reducer;

enum class JoinStep : int32_t { kEnded = 0, kIteration = 1, kBroadcastBuffers = 2, kMeanBuffers = 3 };

// The ranks that take part in a step with their own data.
struct JoinParticipants {
  int active;      // number of ranks that take part
  int divisor;     // divisor for the means of gradients
  int first_rank;  // the lowest rank that takes part
};

class JoinGate {
 public:
  virtual ~JoinGate() = default;
  // Collective together with the ranks that have run out of batches. Announces the next step to them.
  virtual JoinParticipants announce(const Reducer& reducer, JoinStep step) = 0;
  // May be called from any thread. Interrupts this rank's wait for other ranks, which ends the join on all
  // ranks.
  virtual void interrupt() noexcept = 0;
};

}  // namespace dsc
