// Checks that the fake NCCL fails like the real NCCL, that it injects requested faults, and that it reports
// wrong use.
#include <atomic>

#include "fake_gpu_support.hpp"

using namespace fake_test;

namespace {

constexpr auto kSuccess = NcclResult::success, kInProgress = NcclResult::in_progress;

NcclResult sum(const Rank& self, const Array<int>& memory) {
  return ncclAllReduce(memory.data(), memory.data(), 1, NcclType::int32, NcclOp::sum, self.comm, self.stream);
}

void abort(const Rank& self) { CHECK_NCCL(ncclCommAbort(self.comm)); }

// Runs `body` as ranks 0 and 1, in separate processes, with these faults.
void with_faults(const char* faults, const Body& body) {
  as_processes(2, {{"FAKE_NCCL_FAULT", faults}}, body);
}

// ---- ending a call that hangs

void a_dead_peer_is_not_noticed(void**) {
  as_processes(2, {}, [](const Rank& self) {
    CHECK_NCCL(settled(self.comm));
    if (self.rank == 1) ::_exit(0);
    const Array<int> memory(1, 1);
    CHECK_NCCL(sum(self, memory));
    wait_a_little();
    CHECK(!done(self.stream) && state_of(self.comm) == kSuccess);
    std::thread(abort, self).join();
    CHECK_CUDA(cuStreamSynchronize(self.stream));
    CHECK(fake_gpu_misuses() == 0);
  });
}

void different_counts_hang(void**) {
  as_processes(2, {}, [](const Rank& self) {
    CHECK_NCCL(settled(self.comm));
    const Array<int> memory(8, 1);
    const size_t count = self.rank == 0 ? 8 : 4;
    CHECK_NCCL(ncclReduce(memory.data(), memory.data(), count, NcclType::int32, NcclOp::sum, 0, self.comm,
                          self.stream));
    if (self.rank == 1) CHECK_CUDA(cuStreamSynchronize(self.stream));
    self.when_all_are_here();
    wait_a_little();
    CHECK(state_of(self.comm) == kSuccess && done(self.stream) == (self.rank == 1));
    abort(self);
    CHECK_CUDA(cuStreamSynchronize(self.stream));
  });
}

void leaving_while_an_operation_runs_does_not_hang(void**) {
  as_processes(2, {{"FAKE_NCCL_FAULT", "op_hang"}}, [](const Rank& self) {
    CHECK_NCCL(settled(self.comm));
    static const auto* const memory = new Array<int>(1, 1);
    CHECK_NCCL(sum(self, *memory));
    std::exit(done(self.stream) ? 1 : 0);
  });
}

void a_start_without_all_ends_by_abort(void**) {
  in_child({}, [] {
    const NcclUniqueId id = fresh_id();
    be_rank(id, 1, 2, 0, [](const Rank& self) {
      wait_a_little();
      CHECK(state_of(self.comm) == kInProgress);
      abort(self);
      CHECK(fake_gpu_misuses() == 0);
    });
  });
}

void a_revoked_one_can_be_split_but_not_used(void**) {
  const Body body = [](const Rank& self) {
    CHECK_NCCL(settled(self.comm));
    const Array<int> memory(1, 1);
    if (self.rank == 0) CHECK_NCCL(sum(self, memory));
    const NcclResult begun = ncclCommRevoke(self.comm, dsc::kNcclRevokeDefault);
    CHECK(begun == kInProgress);
    CHECK_NCCL(settled(self.comm));
    CHECK_CUDA(cuStreamSynchronize(self.stream));
    CHECK(sum(self, memory) == NcclResult::invalid_usage);
    NcclComm* part = nullptr;
    CHECK(ncclCommSplit(self.comm, 0, 0, &part, nullptr) == kInProgress);
    CHECK_NCCL(settled(self.comm));
    const Rank inner{self.rank, 2, self.stream, part};
    CHECK_NCCL(sum(inner, memory));
    CHECK_CUDA(cuStreamSynchronize(self.stream));
    CHECK(memory.holds(2));
    CHECK_NCCL(ncclCommDestroy(part));
    CHECK_NCCL(ncclCommDestroy(self.comm));
    CHECK(fake_gpu_misuses() == 0);
  };
  in_child(kEight, [&] { as_threads(2, body); });
  as_processes(2, {}, body);
}

void memory_is_free_after_an_abort(void**) {
  as_processes(2, {}, [](const Rank& self) {
    CHECK_NCCL(settled(self.comm));
    for (int i = 0; self.rank == 0 && i < 50; ++i) {
      const Array<int> memory(1, 1);
      if (i == 0) CHECK_NCCL(sum(self, memory));
      if (i == 0) abort(self);
    }
    if (self.rank == 1) abort(self);
    CHECK(fake_gpu_misuses() == 0);
  });
}

void a_free_waits_for_its_device(void**) {
  in_child(kEight, [] {
    as_threads(2, [&](const Rank& self) {
      CHECK_NCCL(settled(self.comm));
      if (self.rank == 1) return abort(self);  // rank 1 does not call the sum, so the sum of rank 0 hangs
      const Array<int> memory(1, 1);
      auto* const other = new Array<int>(1, 1);
      CudaAddress third = 0;
      CHECK_CUDA(cuMemAllocAsync(&third, 4, self.stream));
      CudaContext* context = nullptr;
      CHECK_CUDA(cuCtxGetCurrent(&context));
      CHECK_NCCL(sum(self, memory));
      CHECK_CUDA(cuMemFreeAsync(third, self.stream));
      auto freed = std::async(std::launch::async, [&] {
        CHECK_CUDA(cuCtxPushCurrent_v2(context));
        delete other;
      });
      CHECK(freed.wait_for(std::chrono::milliseconds(30)) == std::future_status::timeout);
      CHECK(!done(self.stream));
      abort(self);
      freed.wait();
      CHECK(done(self.stream) && fake_gpu_misuses() == 0);
    });
  });
}

// Rank 0 has sent its data and ended its communicator before rank 1 receives.
void expect_arrival(bool arrives, const std::function<void(const Rank&)>& end) {
  in_child(kEight, [&] {
    std::promise<void> promise;
    const std::shared_future<void> over = promise.get_future().share();
    as_threads(2, [&](const Rank& self) {
      CHECK_NCCL(settled(self.comm));
      const Array<int> memory(1, self.rank);
      if (self.rank == 0) {
        CHECK_NCCL(ncclSend(memory.data(), 1, NcclType::int32, 1, self.comm, self.stream));
        CHECK_CUDA(cuStreamSynchronize(self.stream));
        end(self);
        promise.set_value();
        return;
      }
      over.wait();
      CHECK_NCCL(ncclRecv(memory.data(), 1, NcclType::int32, 0, self.comm, self.stream));
      if (arrives) CHECK_CUDA(cuStreamSynchronize(self.stream));
      wait_a_little();
      CHECK(done(self.stream) == arrives);
      abort(self);
      CHECK(memory.holds(arrives ? 0 : 1) && fake_gpu_misuses() == 0);
    });
  });
}

void an_abort_loses_what_is_under_way(void**) {
  expect_arrival(true, [](const Rank& self) { CHECK_NCCL(ncclCommDestroy(self.comm)); });
  expect_arrival(false, abort);
  expect_arrival(false, [](const Rank& self) {
    CHECK(ncclCommRevoke(self.comm, dsc::kNcclRevokeDefault) == kInProgress);
    CHECK_NCCL(settled(self.comm));
    CHECK_NCCL(ncclCommDestroy(self.comm));
  });
}

void a_call_may_take_its_time(void**) {
  as_processes(2, {{"FAKE_NCCL_SLOW_MS", "100"}}, [](const Rank& self) {
    CHECK_NCCL(settled(self.comm));
    const Array<int> memory(1, 1);
    const auto begin = Clock::now();
    CHECK(sum(self, memory) == kInProgress);
    CHECK(holds_for(100, begin, [&] { return state_of(self.comm) == kInProgress && done(self.stream); }));
    CHECK_NCCL(settled(self.comm));
    CHECK_CUDA(cuStreamSynchronize(self.stream));
    CHECK(memory.holds(2) && Clock::now() - begin >= std::chrono::milliseconds(100));
    CHECK_NCCL(ncclCommDestroy(self.comm));
  });
}

// ---- requested faults

void beginnings_fail_as_told(void**) {
  with_faults("init_hang@1", [](const Rank& self) {
    wait_a_little();
    CHECK(state_of(self.comm) == kInProgress);
    abort(self);
  });
  with_faults("init_fail@0#1", [](const Rank& self) {
    if (self.rank == 0) {
      CHECK(settled(self.comm) == NcclResult::system_error);
      CHECK(std::strstr(ncclGetLastError(self.comm), "scripted failure of init"));
    }
    abort(self);
  });
  const auto begin = Clock::now();
  with_faults("init_slow", [begin](const Rank& self) {
    CHECK(holds_for(300, begin, [&] { return state_of(self.comm) == kInProgress; }));
    CHECK_NCCL(settled(self.comm));
    abort(self);
  });
}

void operations_fail_as_told(void**) {
  with_faults("remote_error@1#2;op_hang@0#2", [](const Rank& self) {
    CHECK_NCCL(settled(self.comm));
    const auto* const memory = new Array<int>(1, 1);
    CHECK_NCCL(sum(self, *memory));
    CHECK_CUDA(cuStreamSynchronize(self.stream));
    self.when_all_are_here();
    CHECK_NCCL(sum(self, *memory));
    if (self.rank == 1) {
      CHECK(soon([&] { return state_of(self.comm) == NcclResult::remote_error; }));
      CHECK(sum(self, *memory) == NcclResult::remote_error);
    }
    wait_a_little();
    CHECK(!done(self.stream) && (self.rank == 1 || state_of(self.comm) == kSuccess));
    abort(self);
    CHECK_CUDA(cuStreamSynchronize(self.stream));
    CHECK(memory->holds(2));
  });
  with_faults("in_progress@0#1;invalid_usage@1#1", [](const Rank& self) {
    CHECK_NCCL(settled(self.comm));
    const Array<int> memory(1, 1);
    const NcclResult result = sum(self, memory);
    CHECK(result == (self.rank == 0 ? kInProgress : NcclResult::invalid_usage));
    wait_a_little();
    CHECK(state_of(self.comm) == (self.rank == 0 ? kInProgress : kSuccess) && done(self.stream));
    abort(self);
  });
}

void splits_and_ends_fail_as_told(void**) {
  with_faults("split_fail#1", [](const Rank& self) {
    CHECK_NCCL(settled(self.comm));
    NcclComm* part = nullptr;
    CHECK(ncclCommSplit(self.comm, 0, 0, &part, nullptr) == kInProgress);
    CHECK(settled(self.comm) == NcclResult::system_error && !part);
    abort(self);
  });
  with_faults("finalize_hang@0", [](const Rank& self) {
    CHECK_NCCL(settled(self.comm));
    CHECK(ncclCommFinalize(self.comm) == kInProgress);
    wait_a_little();
    CHECK(state_of(self.comm) == kInProgress);
    abort(self);
  });
  with_faults("abort_slow@0;abort_hang@1", [](const Rank& self) {
    CHECK_NCCL(settled(self.comm));
    static std::atomic<bool> aborted{false};
    const auto begin = Clock::now();
    std::thread([self] {
      abort(self);
      aborted = true;
    }).detach();
    wait_a_little();
    CHECK(holds_for(300, begin, [] { return !aborted; }));
    CHECK(self.rank == 1 || soon([] { return aborted.load(); }));
    if (self.rank == 1) ::_exit(0);
  });
}

void a_dead_context_ends_operations(void**) {
  as_processes(2, {{"FAKE_CUDA_STICKY_AT", "2"}}, [](const Rank& self) {
    CHECK_NCCL(settled(self.comm));
    const Array<int> memory(1, 1);
    Gate gate(self.stream);
    CudaStream* other = nullptr;
    CHECK_CUDA(cuStreamCreateWithPriority(&other, 1, 0));
    CHECK_CUDA(cuMemcpyAsync(memory.address(), memory.address(), 4, other));
    gate.open();
    CHECK(soon([&] { return cuStreamQuery(self.stream) == CudaResult{700}; }));
    CHECK(state_of(self.comm) == NcclResult::unhandled_cuda_error);
    CHECK(sum(self, memory) == NcclResult::unhandled_cuda_error);
    abort(self);
  });
}

// ---- misuse

void expect_misuse(NcclResult expected, const char* words,
                   const std::function<NcclResult(const Rank&)>& call) {
  in_child({}, [&] {
    be_rank(fresh_id(), 0, 1, 0, [&](const Rank& self) {
      CHECK_NCCL(settled(self.comm));
      NcclResult result{};
      const std::string text = complaints_of([&] { result = call(self); });
      if (text.find(words) == std::string::npos) std::fprintf(stderr, "got: %s\n", text.c_str());
      CHECK(text.starts_with("fake NCCL misuse: ") && text.find(words) != std::string::npos);
      CHECK(result == expected && fake_gpu_misuses() == 1);
    });
  });
}

void misuse_of_memory_is_seen(void**) {
  expect_misuse(NcclResult::invalid_argument, "not in one allocation of device 0", [](const Rank& self) {
    static int host = 0;
    return ncclAllReduce(&host, &host, 1, NcclType::int32, NcclOp::sum, self.comm, self.stream);
  });
  expect_misuse(NcclResult::invalid_argument, "not in one allocation of device 0", [](const Rank& self) {
    const Array<int> memory(1);
    return ncclAllReduce(memory.data(), memory.data(), 2, NcclType::int32, NcclOp::sum, self.comm,
                         self.stream);
  });
  expect_misuse(NcclResult::invalid_argument, "not in one allocation of device 0", [](const Rank& self) {
    const Device other(1);
    return sum(self, Array<int>(1));
  });
  expect_misuse(NcclResult::invalid_argument, "what it sends is not aligned", [](const Rank& self) {
    const Array<char> memory(16);
    return ncclAllReduce(memory.data() + 2, memory.data() + 8, 1, NcclType::int32, NcclOp::sum, self.comm,
                         self.stream);
  });
  expect_misuse(NcclResult::invalid_argument, "in place", [](const Rank& self) {
    const Array<int> memory(1);
    return ncclAlltoAll(memory.data(), memory.data(), 1, NcclType::int32, self.comm, self.stream);
  });
  expect_misuse(NcclResult::invalid_argument, "ncclMemFree of what is not of ncclMemAlloc", [](const Rank&) {
    static int host = 0;
    return ncclMemFree(&host);
  });
}

void misuse_of_handles_is_seen(void**) {
  expect_misuse(NcclResult::invalid_argument, "no communicator (any more)", [](const Rank& self) {
    abort(self);
    return ncclCommAbort(self.comm);
  });
  expect_misuse(NcclResult::invalid_argument, "with a bad operation", [](const Rank& self) {
    const Array<int> memory(1);
    return ncclAllReduce(memory.data(), memory.data(), 1, NcclType::int32, static_cast<NcclOp>(5), self.comm,
                         self.stream);
  });
  expect_misuse(NcclResult::invalid_usage, "after ncclCommFinalize", [](const Rank& self) {
    CHECK(ncclCommFinalize(self.comm) == kInProgress);
    CHECK_NCCL(settled(self.comm));
    return sum(self, Array<int>(1));
  });
  expect_misuse(NcclResult::invalid_usage, "without ncclGroupStart",
                [](const Rank&) { return ncclGroupEnd(); });
  expect_misuse(NcclResult::invalid_usage, "outside of a group", [](const Rank& self) {
    return ncclSend(Array<int>(1).data(), 1, NcclType::int32, 0, self.comm, self.stream);
  });
  expect_misuse(NcclResult::invalid_usage, "no other end", [](const Rank& self) {
    const Array<int> memory(1);
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclSend(memory.data(), 1, NcclType::int32, 0, self.comm, self.stream));
    return ncclGroupEnd();
  });
}

void misuse_of_time_is_seen(void**) {
  expect_misuse(NcclResult::invalid_argument, "while the communicator is in progress", [](const Rank& self) {
    const NcclUniqueId id = fresh_id();
    NcclConfig config = nonblocking();
    NcclComm* lonely = nullptr;
    CHECK(ncclCommInitRankConfig(&lonely, 2, id, 0, &config) == kInProgress);
    const Array<int> memory(1);
    const NcclResult result = sum({0, 2, self.stream, lonely}, memory);
    CHECK_NCCL(ncclCommAbort(lonely));
    return result;
  });
  expect_misuse(NcclResult::invalid_usage, "while operations are outstanding", [](const Rank& self) {
    const Array<int> memory(1);
    Gate gate(self.stream);
    CHECK_NCCL(sum(self, memory));
    NcclComm* part = nullptr;
    const NcclResult result = ncclCommSplit(self.comm, 0, 0, &part, nullptr);
    gate.open();
    CHECK_CUDA(cuStreamSynchronize(self.stream));
    return result;
  });
  expect_misuse(NcclResult::invalid_usage, "while there are graphs with its operations",
                [](const Rank& self) {
                  const Array<int> memory(1);
                  fake_gpu::CudaGraph* graph = nullptr;
                  CHECK_CUDA(cuStreamBeginCapture_v2(self.stream, dsc::CudaCaptureMode::relaxed));
                  CHECK_NCCL(sum(self, memory));
                  CHECK_CUDA(cuStreamEndCapture(self.stream, &graph));
                  const NcclResult result = ncclCommDestroy(self.comm);
                  CHECK_CUDA(cuGraphDestroy(graph));
                  CHECK_NCCL(ncclCommDestroy(self.comm));
                  return result;
                });
}

void two_threads_at_once_are_seen(void**) {
  in_child({{"FAKE_NCCL_FAULT", "split_hang"}}, [] {
    const Device device(0);
    NcclComm *comm = nullptr, *part = nullptr;
    NcclConfig config;  // the default configuration is blocking
    CHECK_NCCL(ncclCommInitRankConfig(&comm, 1, fresh_id(), 0, &config));
    std::thread hanging([&] { ncclCommSplit(comm, 0, 0, &part, nullptr); });
    CHECK(soon([&] { return state_of(comm) == kInProgress; }));
    const Array<int> memory(1);
    CHECK(sum({0, 1, device.stream, comm}, memory) == NcclResult::invalid_usage);
    CHECK(fake_gpu_misuses() == 1);
    CHECK_NCCL(ncclCommAbort(comm));
    hanging.join();
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_dead_peer_is_not_noticed),
      cmocka_unit_test(different_counts_hang),
      cmocka_unit_test(leaving_while_an_operation_runs_does_not_hang),
      cmocka_unit_test(a_start_without_all_ends_by_abort),
      cmocka_unit_test(a_revoked_one_can_be_split_but_not_used),
      cmocka_unit_test(memory_is_free_after_an_abort),
      cmocka_unit_test(a_free_waits_for_its_device),
      cmocka_unit_test(an_abort_loses_what_is_under_way),
      cmocka_unit_test(a_call_may_take_its_time),
      cmocka_unit_test(beginnings_fail_as_told),
      cmocka_unit_test(operations_fail_as_told),
      cmocka_unit_test(splits_and_ends_fail_as_told),
      cmocka_unit_test(a_dead_context_ends_operations),
      cmocka_unit_test(misuse_of_memory_is_seen),
      cmocka_unit_test(misuse_of_handles_is_seen),
      cmocka_unit_test(misuse_of_time_is_seen),
      cmocka_unit_test(two_threads_at_once_are_seen),
  };
  return cmocka_run_group_tests_name("fake_nccl_faults", tests, nullptr, nullptr);
}
