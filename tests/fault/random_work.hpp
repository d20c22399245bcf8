// Random operations, the same on all ranks of a crew. The expected value of every element is known.
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

  // Creates the second communicator, whose ranks are in reverse order, and memory that all ranks can reach.
  bool prepare();
  // Releases what prepare() created.
  void release();
  // Runs the next operation. After DSC_OK the result was checked, see wrong().
  dsc_result_t step();
  // Describes an error in a result. Empty if there was none.
  const std::string& wrong() const { return wrong_; }

  // The communicator of the latest operation, and the other communicator.
  dsc_comm_t* comm() const { return reversed_ ? reverse_ : rank_.world; }
  dsc_comm_t* other() const { return reversed_ ? rank_.world : reverse_; }
  bool reversed() const { return reversed_; }
  // The time of the latest call.
  int64_t began_us() const { return began_us_; }

 private:
  enum class Kind {
    kAllReduce,
    kReduce,
    kReduceScatter,
    kReduceScatterV,
    kBroadcast,
    kGather,
    kAllGather,
    kAllGatherV,
    kScatter,
    kAllToAll,
    kAllToAllV,
    kRing,
    kBarrier,
    kCount
  };

  // A small reduction of any type, and a larger operation on 32-bit patterns.
  dsc_result_t step_typed();
  dsc_result_t step_patterns();
  dsc_result_t run();
  dsc_result_t start(dsc_work_t** work);
  dsc_result_t start_with_lengths(dsc_work_t** work);
  dsc_result_t run_ring();
  int pick(uint64_t choices) { return static_cast<int>(random_() % choices); }
  void* registered();
  uint32_t* memory(std::vector<uint32_t>& plain, void* shared, bool use_shared);

  bool reduces() const { return kind_ <= Kind::kReduceScatterV; }
  bool divides() const;   // each sender's elements go to several ranks
  bool collects() const;  // each receiver's elements are from several ranks
  bool comes(int from) const;
  // The number of elements that rank `from` sends to rank `to`, and the number of elements before them in the
  // buffers of the sender and the receiver.
  size_t length(int from, int to) const;
  size_t sent_before(int from, int to) const;
  size_t received_before(int from, int to) const;

  void fill();
  void check();
  uint32_t element(int rank, size_t index) const;
  bool expect(const uint32_t* found, size_t count, uint32_t first, uint32_t stride);

  Rank& rank_;
  std::mt19937_64 random_;
  const size_t most_bytes_;
  dsc_comm_t* reverse_ = nullptr;
  void* shared_send_ = nullptr;
  void* shared_recv_ = nullptr;
  std::vector<uint32_t> registered_;
  std::vector<uint32_t> plain_send_;
  std::vector<uint32_t> plain_recv_;

  // The running operation: its number, its kind, and the choices made for it.
  uint32_t number_ = 0;
  Kind kind_ = Kind::kBarrier;
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
