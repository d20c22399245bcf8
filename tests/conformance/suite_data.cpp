// What operations move: all kinds of operations, memory, messages and batches.
#include <algorithm>
#include <array>
#include <numeric>

#include "comm/gather.hpp"
#include "comm/memory.hpp"
#include "suite.hpp"

extern "C" {
#include "cmocka_c.h"  // included last because it defines a macro fail()
}

namespace suite {
namespace {

using dsc::Call;
using dsc::OpKind;

constexpr int kRoot = 1;

template <typename T>
constexpr int32_t kDtype = 0;
template <>
constexpr int32_t kDtype<uint8_t> = DSC_DTYPE_U8;
template <>
constexpr int32_t kDtype<int32_t> = DSC_DTYPE_I32;
template <>
constexpr int32_t kDtype<float> = DSC_DTYPE_F32;
template <>
constexpr int32_t kDtype<double> = DSC_DTYPE_F64;

bool reduces(OpKind kind) {
  return kind == OpKind::kAllReduce || kind == OpKind::kReduce || kind == OpKind::kReduceScatter ||
         kind == OpKind::kReduceScatterV;
}
// Returns whether each receiver gets a different block.
bool divides(OpKind kind) {
  return kind == OpKind::kReduceScatter || kind == OpKind::kReduceScatterV || kind == OpKind::kScatter ||
         kind == OpKind::kAllToAll || kind == OpKind::kAllToAllV;
}
bool only_root_sends(OpKind kind) { return kind == OpKind::kBroadcast || kind == OpKind::kScatter; }
bool only_root_receives(OpKind kind) { return kind == OpKind::kReduce || kind == OpKind::kGather; }

struct Shape {
  OpKind kind;
  int size;
  size_t count;

  // Returns how many elements one rank sends to another. The kinds with lengths use 0, 1 and 2 times the
  // count.
  size_t length(int from, int to) const {
    if (kind == OpKind::kAllGatherV) return static_cast<size_t>(from % 3) * count;
    if (kind == OpKind::kReduceScatterV) return static_cast<size_t>((to + 1) % 3) * count;
    if (kind == OpKind::kAllToAllV) return static_cast<size_t>((from + 2 * to) % 3) * count;
    return count;
  }
  // Returns where the elements that one rank sends to another start in the send buffer.
  size_t start(int from, int to) const {
    size_t start = 0;
    for (int other = 0; divides(kind) && other < to; ++other) start += length(from, other);
    return start;
  }
  bool sends(int rank) const { return !only_root_sends(kind) || rank == kRoot; }
  bool receives(int rank) const { return !only_root_receives(kind) || rank == kRoot; }
  size_t sent_by(int rank) const { return divides(kind) ? start(rank, size) : length(rank, 0); }
};

// Sums of up to 16 values are exact in all types.
template <typename T>
T value(int rank, size_t index) {
  return static_cast<T>((static_cast<size_t>(rank) * 7 + index * 3) % 5);
}

template <typename T>
std::vector<T> sent(const Shape& shape, int rank) {
  std::vector<T> values(shape.sent_by(rank));
  for (size_t i = 0; i < values.size(); ++i) values[i] = value<T>(rank, i);
  return values;
}

template <typename T>
std::vector<T> received(const Shape& shape, int rank) {
  std::vector<T> values;
  if (reduces(shape.kind)) values.resize(shape.length(0, rank));
  for (int from = 0; from < shape.size; ++from) {
    if (!shape.sends(from)) continue;
    for (size_t i = 0; i < shape.length(from, rank); ++i) {
      const T element = value<T>(from, shape.start(from, rank) + i);
      if (reduces(shape.kind))
        values[i] = static_cast<T>(values[i] + element);
      else
        values.push_back(element);
    }
  }
  return values;
}

std::shared_ptr<const dsc::BlockList> lengths_of(const Shape& shape, int rank, bool outgoing) {
  std::vector<size_t> lengths;
  for (int other = 0; other < shape.size; ++other)
    lengths.push_back(outgoing ? shape.length(rank, other) : shape.length(other, rank));
  return std::make_shared<const dsc::BlockList>(std::move(lengths));
}

template <typename T>
Call call_of(const Shape& shape, int rank) {
  Call call;
  call.kind = shape.kind;
  call.dtype = kDtype<T>;
  call.count = shape.count;
  if (reduces(shape.kind)) call.op = DSC_OP_SUM;
  if (only_root_sends(shape.kind) || only_root_receives(shape.kind)) call.root = kRoot;
  const bool is_all_to_all = shape.kind == OpKind::kAllToAllV;
  if (shape.kind == OpKind::kReduceScatterV || is_all_to_all)
    call.send_blocks = lengths_of(shape, rank, true);
  if (shape.kind == OpKind::kAllGatherV || is_all_to_all) call.recv_blocks = lengths_of(shape, rank, false);
  if (is_all_to_all) call.count = 0;
  for (const auto& agreed : {call.send_blocks, call.recv_blocks})
    if (agreed && !is_all_to_all) {
      call.count = agreed->total();
      call.tag = hash_of(*agreed);
    }
  return call;
}

template <typename T>
int check_out_of_place(rank_t* self, dsc::Comm& comm, const Shape& shape) {
  Call call = call_of<T>(shape, comm.rank());
  const std::vector<T> expected = received<T>(shape, comm.rank());
  const std::vector<T> inputs = sent<T>(shape, comm.rank());
  Buffer<T> send(comm, inputs), recv(comm, std::vector<T>(expected.size(), T{99}));
  if (shape.sends(comm.rank())) call.send = send.data();
  if (shape.receives(comm.rank())) call.recv = recv.data();
  if (comm.unsupported_reason(call)) return 0;
  comm.run(call);
  if (shape.receives(comm.rank()) && recv.read() != expected)
    FAIL(self, "%s of %zu elements of type %d: wrong result", op_kind_name(shape.kind), shape.count,
         kDtype<T>);
  CHECK(self, send.read() == inputs);
  return 0;
}

// The smaller buffer is a part of the larger one.
template <typename T>
int check_in_place(rank_t* self, dsc::Comm& comm, const Shape& shape) {
  const int rank = comm.rank();
  if (shape.kind == OpKind::kAllToAll || shape.kind == OpKind::kAllToAllV) return 0;
  if (!shape.sends(rank) || !shape.receives(rank)) return check_out_of_place<T>(self, comm, shape);
  Call call = call_of<T>(shape, rank);
  const std::vector<T> expected = received<T>(shape, rank), inputs = sent<T>(shape, rank);
  std::vector<T> all(std::max(expected.size(), inputs.size()), T{99});
  size_t send_at = 0, recv_at = 0;
  if (divides(shape.kind)) recv_at = shape.start(rank, rank);
  for (int other = 0; expected.size() > inputs.size() && other < rank; ++other)
    send_at += shape.length(other, rank);
  std::ranges::copy(inputs, all.begin() + static_cast<ptrdiff_t>(send_at));
  Buffer<T> buffer(comm, std::move(all));
  call.send = buffer.data() + send_at;
  call.recv = buffer.data() + recv_at;
  if (comm.unsupported_reason(call)) return 0;
  comm.run(call);
  const std::vector<T> result = buffer.read();
  if (!std::equal(expected.begin(), expected.end(), result.begin() + static_cast<ptrdiff_t>(recv_at)))
    FAIL(self, "%s in place of %zu elements of type %d: wrong result", op_kind_name(shape.kind), shape.count,
         kDtype<T>);
  return 0;
}

constexpr OpKind kMoving[] = {OpKind::kAllReduce,      OpKind::kBroadcast, OpKind::kAllGather,
                              OpKind::kReduceScatter,  OpKind::kReduce,    OpKind::kGather,
                              OpKind::kScatter,        OpKind::kAllToAll,  OpKind::kAllGatherV,
                              OpKind::kReduceScatterV, OpKind::kAllToAllV};

template <typename T>
int check_all(rank_t* self, dsc::Comm& comm) {
  for (const OpKind kind : kMoving)
    for (const size_t count : {0, 1, 7, 3000}) {
      const Shape shape{kind, comm.size(), count};
      PASS_ON(check_out_of_place<T>(self, comm, shape));
      PASS_ON(check_in_place<T>(self, comm, shape));
    }
  return 0;
}

int every_kind_body(rank_t* self, dsc::Comm& world) {
  PASS_ON(check_all<uint8_t>(self, world));
  PASS_ON(check_all<int32_t>(self, world));
  PASS_ON(check_all<float>(self, world));
  return check_all<double>(self, world);
}

// The kinds that only the library uses move host memory, even in a world that is bound to a device.
int internal_body(rank_t* self, dsc::Comm& world) {
  for (const OpKind kind : {OpKind::kSplit, OpKind::kCreateGroup, OpKind::kMemAlloc, OpKind::kVerify,
                            OpKind::kPipeRun, OpKind::kBind}) {
    const auto ranks = dsc::gather_all(world, kind, 5, int32_t{world.rank() * 3});
    for (int rank = 0; rank < world.size(); ++rank) CHECK(self, ranks[static_cast<size_t>(rank)] == rank * 3);
  }
  for (const OpKind kind :
       {OpKind::kBarrier, OpKind::kMonitoredBarrier, OpKind::kReady, OpKind::kReducerFinish}) {
    Call call;
    call.kind = kind;
    world.run(call);
  }
  return 0;
}

Call message(OpKind kind, int peer, Buffer<int32_t>& buffer, size_t count) {
  Call call;
  call.kind = kind;
  call.dtype = DSC_DTYPE_I32;
  call.root = peer;
  call.count = count;
  if (kind == OpKind::kSend)
    call.send = buffer.data();
  else
    call.recv = buffer.data();
  return call;
}

}  // namespace

void every_kind_moves_its_data(void**) {
  for (const int size : {2, 4}) assert_int_equal(run(size, every_kind_body), 0);
}

void internal_kinds_gather(void**) { assert_int_equal(run(4, internal_body), 0); }

// Several messages are sent at the same time, in both directions of each pair.
void messages_keep_their_order(void**) {
  const Body body = [](rank_t* self, dsc::Comm& world) {
    const int next = (world.rank() + 1) % world.size(),
              last = (world.rank() + world.size() - 1) % world.size();
    std::vector<std::shared_ptr<dsc::Work>> works;
    std::vector<std::unique_ptr<Buffer<int32_t>>> sends, recvs;
    constexpr size_t kCounts[] = {1, 0, 5000, 3};
    for (const size_t count : kCounts) {
      const auto seed = static_cast<int32_t>(works.size());
      sends.push_back(
          std::make_unique<Buffer<int32_t>>(world, std::vector<int32_t>(count, 100 * world.rank() + seed)));
      recvs.push_back(std::make_unique<Buffer<int32_t>>(world, std::vector<int32_t>(count, -1)));
      works.push_back(world.start(message(OpKind::kRecv, last, *recvs.back(), count)));
      works.push_back(world.start(message(OpKind::kSend, next, *sends.back(), count)));
    }
    for (const auto& work : works) CHECK(self, work->wait(dsc::Deadline::after_ms(RANKS_TIMEOUT_MS)));
    for (size_t i = 0; i < std::size(kCounts); ++i)
      CHECK(self,
            recvs[i]->read() == std::vector<int32_t>(kCounts[i], 100 * last + static_cast<int32_t>(2 * i)));
    return 0;
  };
  for (const int size : {2, 4}) assert_int_equal(run(size, body), 0);
}

void a_batch_is_one_operation(void**) {
  const Body body = [](rank_t* self, dsc::Comm& world) {
    const Shape sum{OpKind::kAllReduce, world.size(), 10}, all{OpKind::kAllGather, world.size(), 10};
    Buffer<float> first(world, sent<float>(sum, world.rank())), second(world, sent<float>(all, world.rank()));
    Buffer<float> gathered(world, std::vector<float>(10 * static_cast<size_t>(world.size())));
    Call calls[] = {call_of<float>(sum, world.rank()), call_of<float>(all, world.rank())};
    calls[0].send = calls[0].recv = first.data();
    calls[1].send = second.data();
    calls[1].recv = gathered.data();
    const auto work = world.start_batch({calls[0], calls[1]});
    CHECK(self, work->wait(dsc::Deadline::after_ms(RANKS_TIMEOUT_MS)));
    CHECK(self, first.read() == received<float>(sum, world.rank()));
    CHECK(self, gathered.read() == received<float>(all, world.rank()));
    world.run_batch({calls[1]});
    return 0;
  };
  assert_int_equal(run(4, body), 0);
}

void memory_is_zeroed(void**) {
  const Body body = [](rank_t* self, dsc::Comm& world) {
    constexpr size_t kBytes = 10'000;
    auto* const memory = static_cast<char*>(world.allocate_memory(kBytes));
    CHECK(self, std::all_of(memory, memory + kBytes, [](char byte) { return byte == 0; }));
    std::memset(memory, world.rank() + 1, kBytes);
    const auto bytes = dsc::gather_all(world, OpKind::kVerify, 1, memory[kBytes - 1]);
    for (int rank = 0; rank < world.size(); ++rank) CHECK(self, bytes[static_cast<size_t>(rank)] == rank + 1);
    dsc::release_memory(memory);
    return 0;
  };
  assert_int_equal(run(4, body), 0);
}

void operations_are_counted(void**) {
  const Body body = [](rank_t* self, dsc::Comm& world) {
    const Shape shape{OpKind::kAllReduce, world.size(), 1000};
    Buffer<float> buffer(world, sent<float>(shape, world.rank()));
    Call call = call_of<float>(shape, world.rank());
    call.send = call.recv = buffer.data();
    for (int i = 0; i < 3; ++i) world.run(call);
    buffer.read();  // on a device, waits until the operations are complete
    for (int64_t start = now_ms(); now_ms() - start < RANKS_TIMEOUT_MS;
         world.progress(dsc::Deadline::after_ms(1)))
      for (const dsc::OpStats& of : world.stats())
        if (of.operation.starts_with("all_reduce") && of.count == 3 && of.bytes == 3 * 4000) return 0;
    FAIL(self, "the statistics lack three reductions of 4000 bytes");
  };
  assert_int_equal(run(2, body), 0);
}

}  // namespace suite
