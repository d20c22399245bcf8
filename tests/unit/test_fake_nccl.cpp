// Checks that the fake NCCL behaves like the real NCCL: communicators and operations.
#include <atomic>
#include <cmath>

#include "dtype_reference.hpp"
#include "fake_gpu_support.hpp"

using namespace fake_test;

namespace {

constexpr auto kSuccess = NcclResult::success, kInProgress = NcclResult::in_progress;

void finish(const Rank& self) {
  CHECK(ncclCommFinalize(self.comm) == kInProgress);
  CHECK_NCCL(settled(self.comm));
  CHECK_NCCL(ncclCommDestroy(self.comm));
  CHECK(fake_gpu_misuses() == 0);
}

// Waits until the call and the work on the stream are complete, as a library does before its next call.
void finished(const Rank& self, NcclResult result) {
  CHECK(result == kSuccess || result == kInProgress);
  CHECK_NCCL(settled(self.comm));
  CHECK_CUDA(cuStreamSynchronize(self.stream));
}

void on_ranks(int ranks, const Body& body, const Body& end = finish) {
  const Body whole = [&](const Rank& self) {
    CHECK_NCCL(settled(self.comm));
    body(self);
    end(self);
  };
  in_child(kEight, [&] { as_threads(ranks, whole); });
  as_processes(ranks, {}, whole);
}

// ---- reductions, compared with reductions of small integers in double

constexpr size_t kCount = 37;
double number(int rank, size_t i) {
  return static_cast<double>((i * 3 + static_cast<size_t>(rank) * 5) % 4 + 1);
}

double expected(NcclOp op, int ranks, size_t i) {
  double result = number(0, i);
  for (int rank = 1; rank < ranks; ++rank) {
    const double next = number(rank, i);
    if (op == NcclOp::prod) result *= next;
    if (op == NcclOp::max) result = std::fmax(result, next);
    if (op == NcclOp::min) result = std::fmin(result, next);
    if (op == NcclOp::sum || op == NcclOp::avg) result += next;
  }
  return op == NcclOp::avg ? result / ranks : result;
}

template <typename T>
void check_type(const Rank& self, NcclType type) {
  const auto ranks = static_cast<size_t>(self.ranks), rank = static_cast<size_t>(self.rank);
  std::vector<T> values(kCount * ranks);
  for (size_t i = 0; i < values.size(); ++i)
    reference::set<T>(values.data(), i, static_cast<float>(number(self.rank, i)));
  const auto same = [&](T got, NcclOp op, size_t i) {
    T wanted;  // for an integer type, the fraction is cut off
    const double exact = expected(op, self.ranks, i);
    reference::set<T>(&wanted, 0, static_cast<float>(std::is_integral_v<T> ? std::trunc(exact) : exact));
    return std::memcmp(&got, &wanted, sizeof got) == 0;
  };
  for (const NcclOp op : {NcclOp::sum, NcclOp::prod, NcclOp::max, NcclOp::min, NcclOp::avg}) {
    const Array<T> all(values), whole(values), part(kCount), root(kCount);
    CHECK_NCCL(ncclAllReduce(all.data(), all.data(), kCount * ranks, type, op, self.comm, self.stream));
    CHECK_NCCL(ncclReduceScatter(whole.data(), part.data(), kCount, type, op, self.comm, self.stream));
    CHECK_NCCL(ncclReduceScatter(whole.data(), whole.data() + rank * kCount, kCount, type, op, self.comm,
                                 self.stream));
    const Array<T> source(values);
    CHECK_NCCL(ncclReduce(source.data(), root.data(), kCount, type, op, 1, self.comm, self.stream));
    CHECK_CUDA(cuStreamSynchronize(self.stream));
    const std::vector<T> got_all = all.read(), got_part = part.read(), got_whole = whole.read(),
                         got_root = root.read();
    for (size_t i = 0; i < kCount * ranks; ++i) CHECK(same(got_all[i], op, i));
    for (size_t i = 0; i < kCount; ++i) {
      CHECK(same(got_part[i], op, rank * kCount + i));
      CHECK(same(got_whole[rank * kCount + i], op, rank * kCount + i));
      if (self.rank == 1) CHECK(same(got_root[i], op, i));
    }
  }
}

void reductions_are_those_of_double(void**) {
  on_ranks(4, [](const Rank& self) {
    check_type<int8_t>(self, NcclType::int8);
    check_type<uint8_t>(self, NcclType::uint8);
    check_type<int32_t>(self, NcclType::int32);
    check_type<uint32_t>(self, NcclType::uint32);
    check_type<int64_t>(self, NcclType::int64);
    check_type<uint64_t>(self, NcclType::uint64);
    check_type<reference::F16>(self, NcclType::float16);
    check_type<float>(self, NcclType::float32);
    check_type<double>(self, NcclType::float64);
    check_type<reference::Bf16>(self, NcclType::bfloat16);
    check_type<reference::E4m3>(self, NcclType::float8_e4m3);
    check_type<reference::E5m2>(self, NcclType::float8_e5m2);
  });
}

void large_reductions_are_as_good(void**) {
  on_ranks(3, [](const Rank& self) {
    const size_t count = 100'003;
    std::vector<float> values(count), wanted(count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(number(self.rank, i));
    for (size_t i = 0; i < count; ++i) wanted[i] = static_cast<float>(expected(NcclOp::sum, self.ranks, i));
    const Array<float> in(values), out(count);
    CHECK_NCCL(
        ncclAllReduce(in.data(), out.data(), count, NcclType::float32, NcclOp::sum, self.comm, self.stream));
    CHECK_NCCL(
        ncclAllReduce(in.data(), in.data(), count, NcclType::float32, NcclOp::sum, self.comm, self.stream));
    CHECK_CUDA(cuStreamSynchronize(self.stream));
    CHECK(in.read() == wanted && out.read() == wanted);
  });
}

void ranks_scale_their_inputs(void**) {
  on_ranks(3, [](const Rank& self) {
    const Array<float> in(10, 8.0F), out(10), scalar(1, 0.25F);
    NcclOp own{}, on_device{};
    float half = self.rank == 2 ? 0.5F : 1.0F;  // each rank has a different value
    CHECK_NCCL(ncclRedOpCreatePreMulSum(&own, &half, NcclType::float32,
                                        dsc::NcclScalarResidence::host_immediate, self.comm));
    half = 0;
    CHECK_NCCL(ncclRedOpCreatePreMulSum(&on_device, scalar.data(), NcclType::float32,
                                        dsc::NcclScalarResidence::device, self.comm));
    finished(self, ncclAllReduce(in.data(), out.data(), 10, NcclType::float32, own, self.comm, self.stream));
    CHECK(out.holds(20.0F));
    finished(self,
             ncclAllReduce(in.data(), out.data(), 10, NcclType::float32, on_device, self.comm, self.stream));
    CHECK(out.holds(6.0F));
    CHECK_NCCL(ncclRedOpDestroy(own, self.comm));
    CHECK_NCCL(ncclRedOpDestroy(on_device, self.comm));
  });
}

// ---- moving

// Each element encodes its sender, its receiver and its position.
int mark(int from, int to, size_t i) { return from * 1'000'000 + to * 100'000 + static_cast<int>(i); }

std::vector<int> marks(int from, int to, size_t count) {
  std::vector<int> all(count);
  for (size_t i = 0; i < count; ++i) all[i] = mark(from, to, i);
  return all;
}

std::vector<int> joined(int ranks, const std::function<std::vector<int>(int)>& part) {
  std::vector<int> all;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<int> one = part(rank);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

void check_moves(const Rank& self, size_t count) {
  const auto ranks = static_cast<size_t>(self.ranks);
  const NcclType type = NcclType::int32;
  const int me = self.rank, last = self.ranks - 1;
  const Array<int> own(marks(me, 0, count)), one(count), gathered(ranks * count), exchanged(ranks * count),
      gathered_at_last(ranks * count), scattered(count),
      parts(joined(self.ranks, [&](int to) { return marks(me, to, count); }));
  CHECK_NCCL(ncclBroadcast(own.data(), one.data(), count, type, last, self.comm, self.stream));
  CHECK_NCCL(ncclAllGather(own.data(), gathered.data(), count, type, self.comm, self.stream));
  CHECK_NCCL(ncclAlltoAll(parts.data(), exchanged.data(), count, type, self.comm, self.stream));
  CHECK_NCCL(ncclGather(own.data(), gathered_at_last.data(), count, type, last, self.comm, self.stream));
  CHECK_NCCL(ncclScatter(parts.data(), scattered.data(), count, type, 1, self.comm, self.stream));
  CHECK_CUDA(cuStreamSynchronize(self.stream));
  const std::vector<int> of_all = joined(self.ranks, [&](int from) { return marks(from, 0, count); });
  CHECK(one.read() == marks(last, 0, count));
  CHECK(gathered.read() == of_all);
  CHECK(exchanged.read() == joined(self.ranks, [&](int from) { return marks(from, me, count); }));
  CHECK(me != last || gathered_at_last.read() == of_all);
  CHECK(scattered.read() == marks(1, me, count));
}

void data_is_moved(void**) {
  on_ranks(3, [](const Rank& self) {
    for (const size_t count : {size_t{1}, size_t{1000}, size_t{70'000}}) check_moves(self, count);
  });
}

void in_place_is_as_good(void**) {
  on_ranks(3, [](const Rank& self) {
    const size_t count = 1000, at = static_cast<size_t>(self.rank) * count;
    std::vector<int> start(3 * count);
    for (size_t i = 0; i < count; ++i) start[at + i] = mark(self.rank, 0, i);
    const Array<int> all(start), one(marks(self.rank, 7, count));
    CHECK_NCCL(ncclAllGather(all.data() + at, all.data(), count, NcclType::int32, self.comm, self.stream));
    CHECK_NCCL(ncclBroadcast(one.data(), one.data(), count, NcclType::int32, 1, self.comm, self.stream));
    CHECK_CUDA(cuStreamSynchronize(self.stream));
    CHECK(all.read() == joined(3, [&](int from) { return marks(from, 0, count); }));
    CHECK(one.read() == marks(1, 7, count));
  });
}

void sends_and_receives_of_a_group_go_on_together(void**) {
  on_ranks(3, [](const Rank& self) {
    const size_t count = 100'000;  // more than the buffer between the ranks can hold
    const int next = (self.rank + 1) % 3, before = (self.rank + 2) % 3;
    const Array<int> to_next(marks(self.rank, next, count)), to_self(marks(self.rank, 9, 5)),
        from_before(count), from_self(5), sum(1, 1);
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclSend(to_next.data(), count, NcclType::int32, next, self.comm, self.stream));
    CHECK_NCCL(ncclSend(to_self.data(), 5, NcclType::int32, self.rank, self.comm, self.stream));
    CHECK_NCCL(ncclGroupEnd());
    CHECK_NCCL(
        ncclAllReduce(sum.data(), sum.data(), 1, NcclType::int32, NcclOp::sum, self.comm, self.stream));
    CHECK_NCCL(ncclRecv(from_self.data(), 5, NcclType::int32, self.rank, self.comm, self.stream));
    CHECK_NCCL(ncclRecv(from_before.data(), count, NcclType::int32, before, self.comm, self.stream));
    finished(self, ncclGroupEnd());
    CHECK(from_before.read() == marks(before, self.rank, count));
    CHECK(from_self.read() == marks(self.rank, 9, 5) && sum.holds(3));
  });
}

// As over sockets, a send is complete when its last bytes are in the buffer.
void a_single_send_waits_only_for_room(void**) {
  in_child(kEight, [] {
    std::atomic<bool> seen{false};
    as_threads(2, [&](const Rank& self) {
      CHECK_NCCL(settled(self.comm));
      const size_t few = 4, many = 1 << 20;
      const Array<int> memory(many, self.rank);
      if (self.rank == 0) {
        CHECK_NCCL(ncclSend(memory.data(), few, NcclType::int32, 1, self.comm, self.stream));
        CHECK_CUDA(cuStreamSynchronize(self.stream));
        CHECK_NCCL(ncclSend(memory.data(), many - few, NcclType::int32, 1, self.comm, self.stream));
        wait_a_little();
        CHECK(!done(self.stream));
        seen = true;
      } else {
        CHECK(soon([&] { return seen.load(); }));
        CHECK_NCCL(ncclRecv(memory.data(), few, NcclType::int32, 0, self.comm, self.stream));
        CHECK_NCCL(ncclRecv(memory.data() + few, many - few, NcclType::int32, 0, self.comm, self.stream));
      }
      CHECK_CUDA(cuStreamSynchronize(self.stream));
      CHECK(memory.holds(0));
      finish(self);
    });
  });
}

void operations_of_two_streams_keep_their_order(void**) {
  on_ranks(2, [](const Rank& self) {
    CudaStream* other = nullptr;
    CHECK_CUDA(cuStreamCreateWithPriority(&other, dsc::kCudaStreamNonBlocking, 0));
    const Array<int> memory(1, 1);
    for (int i = 0; i < 10; ++i)
      CHECK_NCCL(ncclAllReduce(memory.data(), memory.data(), 1, NcclType::int32, NcclOp::sum, self.comm,
                               i % 2 ? other : self.stream));
    CHECK_CUDA(cuStreamSynchronize(other));
    CHECK(memory.holds(1024));
    CHECK_CUDA(cuStreamDestroy_v2(other));
  });
}

// ---- communicators

void a_communicator_knows_itself(void**) {
  on_ranks(3, [](const Rank& self) {
    int ranks = 0, rank = -1, device = -1;
    CHECK_NCCL(ncclCommCount(self.comm, &ranks));
    CHECK_NCCL(ncclCommUserRank(self.comm, &rank));
    CHECK_NCCL(ncclCommCuDevice(self.comm, &device));
    CudaDevice current = -1;
    CHECK_CUDA(cuCtxGetDevice(&current));
    CHECK(ranks == 3 && rank == self.rank && device == current);
    CHECK(std::string(ncclGetErrorString(kSuccess)).starts_with("fake NCCL"));
  });
}

int sum_over(const Rank& self, NcclComm* comm, int value) {
  const Array<int> memory(1, value);
  const NcclResult begun =
      ncclAllReduce(memory.data(), memory.data(), 1, NcclType::int32, NcclOp::sum, comm, self.stream);
  CHECK(begun == kSuccess);
  CHECK_CUDA(cuStreamSynchronize(self.stream));
  return memory.read()[0];
}

void splits_are_by_color_and_key(void**) {
  on_ranks(4, [](const Rank& self) {
    auto* part = reinterpret_cast<NcclComm*>(1);
    const int color = self.rank == 3 ? dsc::kNcclNoColor : self.rank % 2;
    CHECK(ncclCommSplit(self.comm, color, -self.rank, &part, nullptr) == kInProgress);
    CHECK_NCCL(settled(self.comm));
    CHECK((part == nullptr) == (self.rank == 3));
    if (!part) return;
    int ranks = 0, rank = -1;
    CHECK_NCCL(ncclCommCount(part, &ranks));
    CHECK_NCCL(ncclCommUserRank(part, &rank));
    CHECK(ranks == (color == 0 ? 2 : 1) && rank == (self.rank == 0 ? 1 : 0));
    CHECK(sum_over(self, part, self.rank + 1) == (color == 0 ? 4 : 2));
    NcclComm* again = nullptr;
    CHECK(ncclCommSplit(part, 0, 0, &again, nullptr) == kInProgress);
    CHECK_NCCL(settled(part));
    CHECK(sum_over(self, again, 1) == ranks);
    int rank_again = -1;  // all keys are equal, so the order of the ranks stays the same
    CHECK_NCCL(ncclCommUserRank(again, &rank_again));
    CHECK(rank_again == rank);
    CHECK_NCCL(ncclCommDestroy(again));
    CHECK_NCCL(ncclCommDestroy(part));
  });
}

void a_shrunk_one_goes_on_without_some(void**) {
  const Body abort = [](const Rank& self) { CHECK_NCCL(ncclCommAbort(self.comm)); };
  const Body shrink = [](const Rank& self) {
    const Array<int> memory(1, 1);
    int gone[] = {0};
    if (self.rank == 0) return;
    CHECK_NCCL(
        ncclAllReduce(memory.data(), memory.data(), 1, NcclType::int32, NcclOp::sum, self.comm, self.stream));
    NcclComm* rest = nullptr;
    CHECK(ncclCommShrink(self.comm, gone, 1, &rest, nullptr, dsc::kNcclShrinkAbort) == kInProgress);
    CHECK_NCCL(settled(self.comm));
    CHECK_CUDA(cuStreamSynchronize(self.stream));
    CHECK(sum_over(self, rest, self.rank) == 3);
    CHECK_NCCL(ncclCommDestroy(rest));
    CHECK(fake_gpu_misuses() == 0);
  };
  on_ranks(3, shrink, abort);
}

void many_small_operations_are_quick(void**) {
  on_ranks(2, [](const Rank& self) {
    const Array<int> memory(4, 1);
    for (int i = 0; i < 3000; ++i) {
      CHECK_NCCL(ncclAllReduce(memory.data(), memory.data(), 4, NcclType::int32, NcclOp::max, self.comm,
                               self.stream));
      if (i % 100 == 0) CHECK_CUDA(cuStreamSynchronize(self.stream));
    }
    CHECK_CUDA(cuStreamSynchronize(self.stream));
    CHECK(memory.holds(1));
  });
}

void what_is_captured_is_replayed(void**) {
  on_ranks(2, [](const Rank& self) {
    const Array<int> memory(4, 1);
    fake_gpu::CudaGraph* graph = nullptr;
    fake_gpu::CudaGraphExec* exec = nullptr;
    CHECK_CUDA(cuStreamBeginCapture_v2(self.stream, dsc::CudaCaptureMode::thread_local_only));
    CHECK_NCCL(
        ncclAllReduce(memory.data(), memory.data(), 4, NcclType::int32, NcclOp::sum, self.comm, self.stream));
    CHECK_CUDA(cuStreamEndCapture(self.stream, &graph));
    CHECK_CUDA(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(memory.holds(1));
    for (int i = 0; i < 3; ++i) CHECK_CUDA(cuGraphLaunch(exec, self.stream));
    CHECK_NCCL(
        ncclAllReduce(memory.data(), memory.data(), 4, NcclType::int32, NcclOp::sum, self.comm, self.stream));
    CHECK_CUDA(cuStreamSynchronize(self.stream));
    CHECK(memory.holds(16));
    CHECK_CUDA(cuGraphDestroy(graph));
    CHECK_CUDA(cuGraphExecDestroy(exec));
  });
}

void windows_are_of_memory_of_nccl(void**) {
  on_ranks(2, [](const Rank& self) {
    void* memory = nullptr;
    const Array<int> other(1);
    dsc::NcclWindow *window = nullptr, *none = nullptr;
    CHECK_NCCL(ncclMemAlloc(&memory, 64));
    CHECK(ncclCommWindowRegister(self.comm, memory, 64, &window, dsc::kNcclWindowSymmetric) == kInProgress);
    CHECK_NCCL(settled(self.comm));
    CHECK(ncclCommWindowRegister(self.comm, other.data(), 4, &none, dsc::kNcclWindowDefault) == kInProgress);
    CHECK_NCCL(settled(self.comm));
    CHECK(window && !none);
    CHECK_NCCL(ncclCommWindowDeregister(self.comm, window));
    CHECK_NCCL(ncclMemFree(memory));
  });
}

// ---- beginnings

void blocking_ones_of_one_thread_are_made_in_a_group(void**) {
  in_child({}, [] {
    const Device first(0);
    CudaContext *contexts[2] = {}, *popped = nullptr;
    for (int device = 0; device < 2; ++device)
      CHECK_CUDA(cuDevicePrimaryCtxRetain(&contexts[device], device));
    NcclUniqueId id = fresh_id();
    NcclComm* comms[2] = {};
    CHECK_NCCL(ncclGroupStart());
    for (int rank = 0; rank < 2; ++rank) {
      CHECK_CUDA(cuCtxPushCurrent_v2(contexts[rank]));
      CHECK_NCCL(ncclCommInitRankScalable(&comms[rank], 2, rank, 1, &id, nullptr));
      CHECK_CUDA(cuCtxPopCurrent_v2(&popped));
    }
    CHECK_NCCL(ncclGroupEnd());
    int device = -1;
    CHECK_NCCL(ncclCommCuDevice(comms[1], &device));
    CHECK(device == 1);
    CHECK_NCCL(ncclGroupStart());
    for (NcclComm* const comm : comms) CHECK_NCCL(ncclCommFinalize(comm));
    CHECK_NCCL(ncclGroupEnd());
    for (NcclComm* const comm : comms) CHECK_NCCL(ncclCommDestroy(comm));
    CHECK(fake_gpu_misuses() == 0);
  });
}

void two_ranks_have_two_devices(void**) {
  as_processes(2, {{"NCCL_HOSTID", "the same"}}, [](const Rank& self) {
    CHECK(settled(self.comm) == NcclResult::invalid_usage);
    CHECK(std::strstr(ncclGetLastError(self.comm), "Duplicate GPU detected"));
    CHECK_NCCL(ncclCommAbort(self.comm));
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(reductions_are_those_of_double),
      cmocka_unit_test(large_reductions_are_as_good),
      cmocka_unit_test(ranks_scale_their_inputs),
      cmocka_unit_test(data_is_moved),
      cmocka_unit_test(in_place_is_as_good),
      cmocka_unit_test(sends_and_receives_of_a_group_go_on_together),
      cmocka_unit_test(a_single_send_waits_only_for_room),
      cmocka_unit_test(operations_of_two_streams_keep_their_order),
      cmocka_unit_test(a_communicator_knows_itself),
      cmocka_unit_test(splits_are_by_color_and_key),
      cmocka_unit_test(a_shrunk_one_goes_on_without_some),
      cmocka_unit_test(many_small_operations_are_quick),
      cmocka_unit_test(what_is_captured_is_replayed),
      cmocka_unit_test(windows_are_of_memory_of_nccl),
      cmocka_unit_test(blocking_ones_of_one_thread_are_made_in_a_group),
      cmocka_unit_test(two_ranks_have_two_devices),
  };
  return cmocka_run_group_tests_name("fake_nccl", tests, nullptr, nullptr);
}
