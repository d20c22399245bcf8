// Random operations, the same on all ranks of a crew, whose results are known element by element.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "crew.hpp"

namespace fault {

class RandomWork {
 public:
  RandomWork(Rank& rank, uint64_t seed, size_t most_bytes)
      : rank_(rank), random_(seed), most_bytes_(most_bytes) {}

  // Makes the second communicator, whose ranks stand in reverse order, and the shared memory.
  bool prepare();
  // Gives back what prepare() made.
  void release();
  // The next operation. After DSC_OK the result was checked: see wrong().
  dsc_result_t step();
  // What was wrong with a result; empty: nothing.
  const std::string& wrong() const { return wrong_; }

  // Where the latest operation ran, and the other communicator.
  dsc_comm_t* comm() const { return reversed_ ? reverse_ : rank_.world; }
  dsc_comm_t* other() const { return reversed_ ? rank_.world : reverse_; }
  bool reversed() const { return reversed_; }
  // When the latest operation was called.
  int64_t began_us() const { return began_us_; }

 private:
  enum class Kind { kAllReduce, kBroadcast, kAllGather, kReduceScatter, kBarrier, kRing, kCount };

  // A small reduction of any type, or a larger operation on 32-bit patterns.
  dsc_result_t step_typed();
  dsc_result_t step_patterns(Kind kind);
  dsc_result_t run(Kind kind);
  int pick(uint64_t choices) { return static_cast<int>(random_() % choices); }
  dsc_result_t run_ring();
  void check(Kind kind);
  uint32_t* place(std::vector<uint32_t>& plain, void* shared, bool use_shared);
  void fill(uint32_t* target, size_t count, int parts);
  uint32_t element(int rank, size_t index) const;
  bool expect(const uint32_t* found, size_t count, uint32_t first, const char* what);

  Rank& rank_;
  std::mt19937_64 random_;
  const size_t most_bytes_;
  dsc_comm_t* reverse_ = nullptr;
  void* shared_send_ = nullptr;
  void* shared_recv_ = nullptr;
  std::vector<uint32_t> plain_send_;
  std::vector<uint32_t> plain_recv_;

  // The operation that runs.
  uint32_t number_ = 0;
  bool reversed_ = false;
  int me_ = 0;
  int root_ = 0;
  size_t count_ = 0;
  uint32_t* send_ = nullptr;
  uint32_t* recv_ = nullptr;
  bool async_ = false;
  int64_t began_us_ = 0;
  std::string wrong_;
};

}  // namespace fault
