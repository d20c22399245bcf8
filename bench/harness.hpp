// The loop that times every engine, so that all are measured alike: same buffers, same fills, same start
// barrier, same clock, same check of the result. One driver per engine derives from Engine and calls
// measure().
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "pattern.hpp"

namespace bench {

// One process measures one engine, one operation and one size, then ends.
struct Job {
  std::string engine;
  std::string op_name;
  Op op;
  size_t bytes;
  int ranks;
  std::string meeting_path;  // file shared by all ranks, zeroed: start barrier and results
  bool quick;
};

// What a driver is asked to do, see Shape.
struct Call {
  Op op;
  int variant;
  int rank;
  int ranks;
  float* in;  // null where Shape has none
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
  // Engines that offer several algorithms have them all timed, in turn; the fastest one counts.
  virtual std::vector<std::string> variants(Op) const { return {"default"}; }
  // Work that needs doing once for these buffers, before anything is timed.
  virtual void prepare(const Call&) {}
  // The timed part. Throws when the operation fails.
  virtual void call(const Call& call) = 0;
  // Whether a call counts as over when all ranks have returned from theirs.
  virtual bool ends_together() const { return false; }
  // What out[i] must be after call().
  virtual float expected(const Call& call, size_t i) const {
    return bench::expected(call.op, call.rank, call.ranks, call.count, i);
  }
};

// Reads ENGINE OP BYTES RANKS MEETING_FILE full|quick. Throws std::invalid_argument.
Job parse_job(int argc, char** argv);

// The rank that the environment names. Throws std::invalid_argument.
int rank_from_environment();

// Times the engine; rank 0 prints one line of JSON.
void measure(Engine& engine, const Job& job);

// main() of a driver: runs body(job), turns exceptions into a message and exit status 1.
int run_driver(int argc, char** argv, void (*body)(const Job& job));

}  // namespace bench
