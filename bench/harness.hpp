// The loop that times every engine. All engines have the same buffers, fills, start barrier, clock, and check
// of the result. Each engine has a driver, which derives from Engine and calls measure().
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "pattern.hpp"

namespace bench {

// Each process measures one engine, one operation and one size, and then ends.
struct Job {
  std::string engine;
  std::string op_name;
  Op op;
  size_t bytes;
  int ranks;
  // File shared by all ranks, initially zero, for the start barrier and the results.
  std::string meeting_path;
  bool quick;
};

// The call that a driver must make. See Shape for its fields.
struct Call {
  Op op;
  int variant;
  int rank;
  int ranks;
  float* in;  // null if Shape says that this rank has no such buffer
  float* out;
  size_t count;
};

class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine() = default;

  virtual int rank() const = 0;
  virtual float* allocate(size_t count);
  virtual void release(float* buffer);
  // If an engine offers several algorithms, all are timed, and the fastest one counts.
  virtual std::vector<std::string> variants(Op) const { return {"default"}; }
  // Does work that is needed once for these buffers, before anything is timed.
  virtual void prepare(const Call&) {}
  // The timed part. Throws if the operation fails.
  virtual void call(const Call& call) = 0;
  // Returns whether a call counts as finished only when it has returned on all ranks.
  virtual bool ends_together() const { return false; }
  // Returns the value that out[i] must have after call().
  virtual float expected(const Call& call, size_t i) const {
    return bench::expected(call.op, call.rank, call.ranks, call.count, i);
  }
};

// Parses ENGINE OP BYTES RANKS MEETING_FILE full|quick. Throws std::invalid_argument.
Job parse_job(int argc, char** argv);

// Returns the rank from the environment. Throws std::invalid_argument.
int rank_from_environment();

// Times the engine; rank 0 prints one line of JSON.
void measure(Engine& engine, const Job& job);

// The main() of a driver: runs body(job). An exception becomes a message and exit status 1.
int run_driver(int argc, char** argv, void (*body)(const Job& job));

}  // namespace bench
