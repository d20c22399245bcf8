#include "random_work.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

extern "C" {
#include "reference.h"
}

namespace fault {
namespace {

// The difference of two adjacent elements. With this value a shift by any number of elements is noticed.
constexpr uint32_t kStride = 0xC2B2AE35u;
constexpr size_t kMostTyped = 512;  // a typed operation has fewer elements than this
constexpr size_t kMostRanks = 8;

dsc_result_t wait_for(dsc_result_t started, dsc_work_t* work) {
  if (started != DSC_OK) return started;
  const dsc_result_t result = dsc_work_wait(work, -1, nullptr);
  dsc_work_destroy(work);
  return result;
}

}  // namespace

bool RandomWork::prepare() {
  if (dsc_comm_split(rank_.world, 0, -rank_.rank, nullptr, &reverse_) == DSC_OK &&
      dsc_mem_alloc(rank_.world, most_bytes_, DSC_MEMORY_KIND_HOST, &shared_send_) == DSC_OK &&
      dsc_mem_register(rank_.world, registered(), most_bytes_) == DSC_OK) {
    shared_recv_ = registered();
    return true;
  }
  rank_.note("prepare: %s", dsc_last_error_message());
  return false;
}

void RandomWork::release() {
  dsc_mem_free(shared_send_);
  dsc_mem_unregister(shared_recv_);
  dsc_comm_destroy(reverse_);
}

// Begins somewhere in a page, and is on the way in the middle of the vector.
void* RandomWork::registered() {
  constexpr size_t kBefore = 37;
  if (registered_.empty()) registered_.resize(most_bytes_ / sizeof(uint32_t) + 2 * kBefore);
  return registered_.data() + kBefore;
}

uint32_t* RandomWork::memory(std::vector<uint32_t>& plain, void* shared, bool use_shared) {
  if (use_shared) return static_cast<uint32_t*>(shared);
  if (plain.empty()) plain.resize(most_bytes_ / sizeof(uint32_t));
  return plain.data();
}

bool RandomWork::divides() const {
  return kind_ == Kind::kReduceScatter || kind_ == Kind::kReduceScatterV || kind_ == Kind::kScatter ||
         kind_ == Kind::kAllToAll || kind_ == Kind::kAllToAllV;
}

bool RandomWork::collects() const {
  return kind_ == Kind::kGather || kind_ == Kind::kAllGather || kind_ == Kind::kAllGatherV ||
         kind_ == Kind::kAllToAll || kind_ == Kind::kAllToAllV;
}

bool RandomWork::comes(int from) const {
  switch (kind_) {
    case Kind::kReduce:
    case Kind::kGather:
      return me_ == root_;
    case Kind::kBroadcast:
    case Kind::kScatter:
      return from == root_;
    case Kind::kRing:
      return from == (me_ + rank_.size - 1) % rank_.size;
    case Kind::kBarrier:
      return false;
    default:
      return true;
  }
}

size_t RandomWork::length(int from, int to) const {
  switch (kind_) {
    case Kind::kAllGatherV:
      return count_ * ((number_ + static_cast<uint32_t>(from)) % 4) / 3;
    case Kind::kReduceScatterV:
      return count_ * ((number_ + static_cast<uint32_t>(to)) % 4) / 3;
    case Kind::kAllToAllV:
      return count_ * ((number_ + static_cast<uint32_t>(from * 2 + to * 3)) % 4) / 3;
    default:
      return count_;
  }
}

size_t RandomWork::sent_before(int from, int to) const {
  size_t before = 0;
  for (int rank = 0; rank < to && divides(); ++rank) before += length(from, rank);
  return before;
}

size_t RandomWork::received_before(int from, int to) const {
  size_t before = 0;
  for (int rank = 0; rank < from && collects(); ++rank) before += length(rank, to);
  return before;
}

uint32_t RandomWork::element(int rank, size_t index) const {
  return number_ * 0x9E3779B1u + static_cast<uint32_t>(rank) * 0x85EBCA6Bu +
         static_cast<uint32_t>(index) * kStride;
}

void RandomWork::fill() {
  const uint32_t first = element(me_, 0);
  const size_t count = divides() ? sent_before(me_, rank_.size) : length(me_, me_);
  for (size_t i = 0; i < count; ++i) send_[i] = first + static_cast<uint32_t>(i) * kStride;
}

dsc_result_t RandomWork::step() {
  ++number_;
  reversed_ = pick(4) == 0;
  me_ = reversed_ ? rank_.size - 1 - rank_.rank : rank_.rank;
  async_ = pick(3) == 0;
  return pick(4) == 0 ? step_typed() : step_patterns();
}

dsc_result_t RandomWork::step_patterns() {
  kind_ = static_cast<Kind>(pick(static_cast<uint64_t>(Kind::kCount)));
  if (kind_ == Kind::kRing && rank_.size == 1) kind_ = Kind::kBarrier;
  root_ = pick(static_cast<uint64_t>(rank_.size));
  // Small and large sizes are equally likely. Sometimes the size is 0.
  const int magnitude = pick(static_cast<uint64_t>(std::bit_width(most_bytes_ / sizeof(uint32_t))));
  count_ = magnitude == 0 ? 0 : (size_t{1} << magnitude) - random_() % (size_t{1} << (magnitude - 1));
  if (divides() || collects()) count_ /= static_cast<size_t>(rank_.size);
  // In one operation of four some ranks use shared memory and others use plain memory.
  const int sharing = pick(4);
  const bool shared = sharing == 3 ? (number_ + static_cast<uint32_t>(me_)) % 2 == 0 : sharing != 0;
  send_ = memory(plain_send_, shared_send_, shared);
  recv_ = kind_ != Kind::kAllReduce || pick(2) == 0 ? memory(plain_recv_, shared_recv_, shared) : send_;
  fill();
  began_us_ = now_us();
  const dsc_result_t result = run();
  if (result == DSC_OK) check();
  return result;
}

// Tests every type with each of its operations, compared with a serial reference.
dsc_result_t RandomWork::step_typed() {
  dsc_dtype_t dtype = 0;
  dsc_op_t op = 0;
  do {
    dtype = DSC_DTYPE_I8 + pick(DSC_DTYPE_BOOL);
    op = DSC_OP_SUM + pick(DSC_OP_BXOR - DSC_OP_SUM + 1);
  } while (!op_is_offered(op, dtype));
  const size_t count = random_() % kMostTyped;
  const uint64_t seed = random_();
  std::byte send[kMostTyped * 8];
  std::byte recv[kMostTyped * 8];
  std::byte expected[kMostTyped * 8];
  fill_elements(send, 0, count, dtype, seed + static_cast<uint64_t>(me_));
  dsc_work_t* work = nullptr;
  began_us_ = now_us();
  dsc_result_t result =
      dsc_all_reduce(comm(), send, recv, count, dtype, op, nullptr, async_ ? &work : nullptr);
  if (async_) result = wait_for(result, work);
  if (result != DSC_OK) return result;
  reduce_reference(expected, 0, count, dtype, op, seed, rank_.size);
  if (std::memcmp(recv, expected, count * element_bytes(dtype)) != 0)
    wrong_ = format("operation %u: all_reduce(%s, %s, %zu) is wrong", number_, dsc_op_name(op),
                    dsc_dtype_name(dtype), count);
  return result;
}

dsc_result_t RandomWork::run() {
  if (kind_ == Kind::kRing) return run_ring();
  dsc_work_t* work = nullptr;
  const dsc_result_t result = start(async_ ? &work : nullptr);
  return async_ ? wait_for(result, work) : result;
}

dsc_result_t RandomWork::start(dsc_work_t** work) {
  constexpr dsc_dtype_t kType = DSC_DTYPE_U32;
  constexpr dsc_op_t kSum = DSC_OP_SUM;
  switch (kind_) {
    case Kind::kAllReduce:
      return dsc_all_reduce(comm(), send_, recv_, count_, kType, kSum, nullptr, work);
    case Kind::kReduce:
      return dsc_reduce(comm(), send_, recv_, count_, kType, kSum, root_, nullptr, work);
    case Kind::kReduceScatter:
      return dsc_reduce_scatter(comm(), send_, recv_, count_, kType, kSum, nullptr, work);
    case Kind::kBroadcast:
      return dsc_broadcast(comm(), send_, recv_, count_, kType, root_, nullptr, work);
    case Kind::kGather:
      return dsc_gather(comm(), send_, recv_, count_, kType, root_, nullptr, work);
    case Kind::kAllGather:
      return dsc_all_gather(comm(), send_, recv_, count_, kType, nullptr, work);
    case Kind::kScatter:
      return dsc_scatter(comm(), send_, recv_, count_, kType, root_, nullptr, work);
    case Kind::kAllToAll:
      return dsc_all_to_all(comm(), send_, recv_, count_, kType, nullptr, work);
    case Kind::kBarrier:
      return dsc_barrier(comm(), nullptr, work);
    default:
      return start_with_lengths(work);
  }
}

dsc_result_t RandomWork::start_with_lengths(dsc_work_t** work) {
  constexpr dsc_dtype_t kType = DSC_DTYPE_U32;
  std::array<size_t, kMostRanks> sent{};
  std::array<size_t, kMostRanks> received{};
  for (int rank = 0; rank < rank_.size; ++rank) {
    sent[static_cast<size_t>(rank)] = length(me_, rank);
    received[static_cast<size_t>(rank)] = length(rank, me_);
  }
  if (kind_ == Kind::kReduceScatterV)
    return dsc_reduce_scatter_v(comm(), send_, recv_, sent.data(), kType, DSC_OP_SUM, nullptr, work);
  if (kind_ == Kind::kAllGatherV)
    return dsc_all_gather_v(comm(), send_, recv_, received.data(), kType, nullptr, work);
  return dsc_all_to_all_v(comm(), send_, sent.data(), recv_, received.data(), kType, nullptr, work);
}

// Sends to the next rank and receives from the previous one at the same time.
dsc_result_t RandomWork::run_ring() {
  dsc_work_t* sending = nullptr;
  dsc_work_t* receiving = nullptr;
  const int next = (me_ + 1) % rank_.size;
  const int before = (me_ + rank_.size - 1) % rank_.size;
  dsc_result_t sent = dsc_send(comm(), send_, count_, DSC_DTYPE_U32, next, nullptr, &sending);
  if (sent != DSC_OK) return sent;
  dsc_result_t received =
      dsc_recv(comm(), recv_, count_, DSC_DTYPE_U32, before, nullptr, async_ ? &receiving : nullptr);
  if (async_) received = wait_for(received, receiving);
  sent = wait_for(DSC_OK, sending);
  // The work that failed first has the cause of the failure.
  return received == DSC_OK || received == DSC_ERR_REVOKED ? sent : received;
}

bool RandomWork::expect(const uint32_t* found, size_t count, uint32_t first, uint32_t stride) {
  uint32_t difference = 0;
  for (size_t i = 0; i < count; ++i) difference |= found[i] ^ (first + static_cast<uint32_t>(i) * stride);
  if (difference == 0) return true;
  size_t i = 0;
  while (found[i] == first + static_cast<uint32_t>(i) * stride) ++i;
  wrong_ = format("operation %u, kind %d, count %zu: element %td of the output is %08x, expected %08x",
                  number_, static_cast<int>(kind_), count_, found + i - recv_, found[i],
                  first + static_cast<uint32_t>(i) * stride);
  return false;
}

void RandomWork::check() {
  uint32_t sum = 0;
  for (int rank = 0; rank < rank_.size; ++rank) {
    if (!comes(rank)) continue;
    const uint32_t first = element(rank, sent_before(rank, me_));
    sum += first;
    if (!reduces() && !expect(recv_ + received_before(rank, me_), length(rank, me_), first, kStride)) return;
  }
  if (reduces() && comes(me_))
    expect(recv_, length(me_, me_), sum, static_cast<uint32_t>(rank_.size) * kStride);
}

}  // namespace fault
