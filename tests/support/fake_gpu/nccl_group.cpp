// Groups, and how operations are put on streams.
#include <algorithm>
#include <chrono>
#include <thread>

#include "nccl_api.hpp"
#include "nccl_operation.hpp"

namespace fake_gpu {
namespace {

struct Group {
  int depth = 0;
  NcclResult failure = NcclResult::success;
  std::vector<Job> jobs;
  std::vector<std::pair<CommPtr, std::vector<Operation>>> operations;
};

Group& group() {
  thread_local Group own;
  return own;
}

// The first failure is kept. "In progress" is not a failure.
void add_result(NcclResult& all, NcclResult one) {
  if (all == NcclResult::success || (all == NcclResult::in_progress && one != NcclResult::success)) all = one;
}

// Blocking communicators are made together, because one thread may have several ranks of one communicator.
NcclResult run_jobs(std::vector<Job> jobs) {
  NcclResult all = NcclResult::success;
  std::vector<NcclResult> results(jobs.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < jobs.size(); ++i)
    threads.emplace_back([&results, i, job = std::move(jobs[i])] { results[i] = start_job(job); });
  for (std::thread& thread : threads) thread.join();
  for (const NcclResult result : results) add_result(all, result);
  return all;
}

bool self_matched(const Comm& comm, const std::vector<Operation>& operations) {
  const auto own = [&](Kind kind) {
    return std::count_if(operations.begin(), operations.end(), [&](const Operation& operation) {
      return operation.kind == kind && operation.root == comm.rank;
    });
  };
  return own(Kind::send) == own(Kind::recv);
}

void run_on_stream(Comm& comm, const std::vector<Operation>& operations) {
  {
    const std::lock_guard guard(comm.lock);
    if (comm.aborted) return;
    ++comm.running;
  }
  execute(comm, operations);
  const std::lock_guard guard(comm.lock);
  --comm.running;
  comm.changed.notify_all();
}

NcclResult enqueue(const CommPtr& comm, const std::vector<Operation>& operations) {
  std::vector<CudaStream*> streams;
  Action action;
  action.order = comm->order;
  action.over = comm->over;
  action.on_capture = [comm] { return comm->graph_token(); };
  for (const Operation& operation : operations) {
    if (std::find(streams.begin(), streams.end(), operation.stream) == streams.end())
      streams.push_back(operation.stream);
    const Buffers buffers = buffers_of(*comm, operation);
    action.uses.push_back({reinterpret_cast<uintptr_t>(operation.send), buffers.send_bytes});
    action.uses.push_back({reinterpret_cast<uintptr_t>(operation.recv), buffers.recv_bytes});
  }
  action.run = [comm, operations] { run_on_stream(*comm, operations); };
  if (cuda().enqueue(comm->device, streams, std::move(action)) == kOk) return NcclResult::success;
  return failed(*comm, NcclResult::unhandled_cuda_error, "fake NCCL: no place on the stream");
}

}  // namespace

bool in_group() { return group().depth > 0; }

void add_job(Job job) { group().jobs.push_back(std::move(job)); }

NcclResult launch(const CommPtr& comm, std::vector<Operation> operations) {
  if (!self_matched(*comm, operations))
    return misused(NcclResult::invalid_usage,
                   "a send or receive to itself that has no other end in its group");
  const bool stays = std::any_of(operations.begin(), operations.end(), [&](const Operation& operation) {
    return strikes("in_progress", comm->world_rank, operation.number);
  });
  std::erase_if(operations, [](const Operation& operation) { return operation.count == 0; });
  static const int slow_ms = number_of("FAKE_NCCL_SLOW_MS", 0);
  if (stays)
    return run_job(comm, [comm] {
      hang(*comm, [&] { return stopped(*comm); });
      return NcclResult::success;
    });
  if (operations.empty()) return NcclResult::success;
  if (slow_ms == 0 || comm->blocking) return enqueue(comm, operations);
  return run_job(comm, [comm, operations] {
    std::this_thread::sleep_for(std::chrono::milliseconds(slow_ms));
    return ended(*comm) ? NcclResult::success : enqueue(comm, operations);
  });
}

NcclResult add_operation(const CommPtr& comm, const Operation& operation) {
  if (!in_group()) return launch(comm, {operation});
  auto& all = group().operations;
  auto found = std::find_if(all.begin(), all.end(), [&](const auto& entry) { return entry.first == comm; });
  if (found == all.end()) found = all.insert(all.end(), {comm, {}});
  found->second.push_back(operation);
  return NcclResult::success;
}

// A call that fails inside a group makes the end of the group fail.
NcclResult noted(NcclResult result) {
  if (in_group() && result != NcclResult::success && result != NcclResult::in_progress)
    add_result(group().failure, result);
  return result;
}

}  // namespace fake_gpu

using namespace fake_gpu;

extern "C" {

NcclResult ncclGroupStart() {
  ++group().depth;
  return NcclResult::success;
}

NcclResult ncclGroupEnd() {
  if (group().depth == 0) return misused(NcclResult::invalid_usage, "ncclGroupEnd without ncclGroupStart");
  if (--group().depth > 0) return NcclResult::success;
  Group own = std::move(group());
  group() = Group{};
  if (own.failure != NcclResult::success) {
    for (const Job& job : own.jobs) start_job({job.comm, [failure = own.failure] { return failure; }});
    return own.failure;
  }
  NcclResult all = run_jobs(std::move(own.jobs));
  for (auto& [comm, operations] : own.operations) add_result(all, launch(comm, std::move(operations)));
  return all;
}

}  // extern "C"
