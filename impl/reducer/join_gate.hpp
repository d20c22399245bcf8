// The interface that a reducer under a join calls before each of its collectives.
#pragma once

#include <cstdint>

namespace dsc {

class Reducer;

enum class JoinStep : int32_t { kEnded = 0, kIteration = 1, kBroadcastBuffers = 2, kMeanBuffers = 3 };

// The ranks that take part in a step with their own data.
struct JoinParticipants {
  int active;      // number of these ranks
  int divisor;     // of the means of gradients
  int first_rank;  // the lowest of them
};

class JoinGate {
 public:
  virtual ~JoinGate() = default;
  // Collective with the ranks that have run out of batches: tells them the next step.
  virtual JoinParticipants announce(const Reducer& reducer, JoinStep step) = 0;
  // Any thread: ends this rank's wait for the others, which ends the join on all ranks.
  virtual void interrupt() noexcept = 0;
};

}  // namespace dsc
