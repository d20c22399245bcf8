// The fake NCCL's communicators.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "cuda_internals.hpp"
#include "engine_nccl/declarations.hpp"
#include "nccl_region.hpp"

namespace fake_gpu {

using dsc::NcclComm;
using dsc::NcclConfig;
using dsc::NcclOp;
using dsc::NcclResult;
using dsc::NcclType;
using dsc::NcclUniqueId;
using dsc::NcclWindow;

// The factor of red_op_create_pre_mul_sum for this rank's input.
struct Scale {
  NcclType type{};
  double number = 1;
  const void* device_memory = nullptr;  // read when the operation runs
};

struct Comm {
  NcclComm* handle = nullptr;
  int ranks = 0, rank = 0, device = 0;
  int world_rank = 0;  // the rank in the first communicator, which ncclCommInitRank made
  bool blocking = true;
  std::string name;
  std::shared_ptr<Region> region;
  // the position of the latest operation; the next one follows it, even on another stream
  std::shared_ptr<Moment> order = std::make_shared<Moment>();
  std::atomic<bool> aborted{false}, revoked{false};
  std::shared_ptr<std::atomic<bool>> over =
      std::make_shared<std::atomic<bool>>(false);  // true when no operation runs any more
  std::shared_ptr<std::atomic<int>> in_graphs =
      std::make_shared<std::atomic<int>>(0);  // the number of captured operations
  std::atomic<int> users{0};

  std::mutex lock;
  std::condition_variable changed;
  NcclResult state = NcclResult::success;
  std::string last_error;
  bool finalized = false;
  int jobs = 0, running = 0;  // threads that make it or end it, streams that run its operations
  int children = 0;
  unsigned next_op = 5;
  std::map<unsigned, Scale> scales;
  uintptr_t windows_made = 0;
  std::map<uintptr_t, uintptr_t> windows;  // the memory of each window

  // Counts as an operation in a graph until the last copy of the token is destroyed.
  std::shared_ptr<void> graph_token() const {
    ++*in_graphs;
    return {nullptr, [graphs = in_graphs](void*) { --*graphs; }};
  }
};

using CommPtr = std::shared_ptr<Comm>;

const CudaInternals& cuda();
[[gnu::format(printf, 2, 3)]] NcclResult misused(NcclResult result, const char* format, ...);
NcclResult failed(Comm& comm, NcclResult result, const std::string& text);
std::string last_error_of(NcclComm* handle);
void let_go_of_windows(Comm& comm);  // also done at the end of the communicator

NcclComm* add_comm(const CommPtr& comm);
void forget_comm(NcclComm* handle);
CommPtr find_comm(NcclComm* handle, const char* name);  // returns null after reporting an invalid handle

// Marks a communicator as used by this thread. The communicator must exist.
class Use {
 public:
  Use(NcclComm* handle, const char* name);
  ~Use();
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  // Returns why the communicator cannot be used now, or success. An operation also needs a communicator that
  // is not revoked.
  NcclResult refused(bool operation) const;
  const CommPtr& comm() const { return comm_; }

 private:
  CommPtr comm_;
  const char* name_;
  bool alone_ = true;
};

bool ended(const Comm& comm);    // aborted, or CUDA cannot be used any more
bool stopped(const Comm& comm);  // its operations must end: it is revoked or has ended
void hang(Comm& comm, const std::function<bool()>& stop);
void wake(Comm& comm);

struct Job {
  CommPtr comm;
  std::function<NcclResult()> body;
};
NcclResult start_job(Job job);  // runs the job on this thread or on a new one
// Runs the body here, or in a thread while the state is "in progress", or at the end of the group.
NcclResult run_job(const CommPtr& comm, std::function<NcclResult()> body);

// ---- groups
struct Operation;
bool in_group();
void add_job(Job job);
NcclResult add_operation(const CommPtr& comm,
                         const Operation& operation);  // or launches it immediately outside of a group
NcclResult launch(const CommPtr& comm, std::vector<Operation> operations);
NcclResult noted(NcclResult result);  // inside a group, a failure is also kept for the end of the group

// ---- faults
// Returns whether FAKE_NCCL_FAULT names this, for this rank and number.
bool strikes(const std::string& what, int world_rank, int number);
int count(const std::string& what, int world_rank);  // counts from 1
// Causes the faults WHAT_hang, WHAT_slow and WHAT_fail, for the given `what`. Called before the step of that
// name.
NcclResult fault_before(Comm& comm, const std::string& what);

}  // namespace fake_gpu
