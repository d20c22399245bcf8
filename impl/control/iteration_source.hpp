// The part of a gradient reducer that appears in a trace: when the gradients of its latest iteration became
// ready, and when its buckets were reduced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace dsc {

// The times of one iteration, in ticks of tick_now(). A time of 0 means that the event has not happened.
struct RecordedIteration {
  struct Gradient {
    std::string name;
    size_t bucket;
    int64_t ready;
  };
  struct Bucket {
    size_t bytes;
    int64_t launched;
    int64_t reduced;
  };

  uint64_t group = 0;   // id of the reducer's communicator
  uint64_t number = 0;  // number of iterations that have begun; 0 if none has
  int64_t begun = 0;
  int64_t finishing = 0;
  int64_t finished = 0;
  std::vector<Gradient> gradients;
  std::vector<Bucket> buckets;

  bool is_over() const noexcept { return number == 0 || finished != 0; }
};

class IterationSource {
 public:
  virtual ~IterationSource() = default;

  // Returns the latest iteration. Any thread may call this, even while the iteration is running or stuck.
  // Does not wait for other ranks.
  virtual RecordedIteration read_iteration() const = 0;
};

}  // namespace dsc
