#include "random_work.hpp"

#include <bit>
#include <cstddef>
#include <cstring>

extern "C" {
#include "reference.h"
}

namespace fault {
namespace {

// The value of an element grows by this from one element to the next, so that a shift by any place shows.
constexpr uint32_t kStride = 0xC2B2AE35u;
constexpr size_t kMostTyped = 512;  // elements

dsc_result_t wait_for(dsc_result_t started, dsc_work_t* work) {
  if (started != DSC_OK) return started;
  const dsc_result_t result = dsc_work_wait(work, nullptr, -1);
  dsc_work_destroy(work);
  return result;
}

}  // namespace

bool RandomWork::prepare() {
  if (dsc_comm_split(rank_.world, 0, -rank_.rank, nullptr, &reverse_) == DSC_OK &&
      dsc_mem_alloc(rank_.world, most_bytes_, DSC_MEMORY_HOST, &shared_send_) == DSC_OK &&
      dsc_mem_alloc(rank_.world, most_bytes_, DSC_MEMORY_HOST, &shared_recv_) == DSC_OK)
    return true;
  rank_.note("prepare: %s", dsc_last_error_message());
  return false;
}

void RandomWork::release() {
  dsc_mem_free(shared_send_);
  dsc_mem_free(shared_recv_);
  dsc_comm_destroy(reverse_);
}

uint32_t* RandomWork::place(std::vector<uint32_t>& plain, void* shared, bool use_shared) {
  if (use_shared) return static_cast<uint32_t*>(shared);
  if (plain.empty()) plain.resize(most_bytes_ / sizeof(uint32_t));
  return plain.data();
}

uint32_t RandomWork::element(int rank, size_t index) const {
  return number_ * 0x9E3779B1u + static_cast<uint32_t>(rank) * 0x85EBCA6Bu +
         static_cast<uint32_t>(index) * kStride;
}

void RandomWork::fill(uint32_t* target, size_t count, int parts) {
  const uint32_t first = element(me_, 0);
  const size_t all = count * static_cast<size_t>(parts);
  for (size_t i = 0; i < all; ++i) target[i] = first + static_cast<uint32_t>(i) * kStride;
}

dsc_result_t RandomWork::step() {
  ++number_;
  reversed_ = pick(4) == 0;
  me_ = reversed_ ? rank_.size - 1 - rank_.rank : rank_.rank;
  async_ = pick(3) == 0;
  return pick(4) == 0 ? step_typed()
                      : step_patterns(static_cast<Kind>(pick(static_cast<uint64_t>(Kind::kCount))));
}

dsc_result_t RandomWork::step_patterns(Kind kind) {
  root_ = pick(static_cast<uint64_t>(rank_.size));
  // As many small as large ones, and nothing at all now and then.
  const int magnitude = pick(static_cast<uint64_t>(std::bit_width(most_bytes_ / sizeof(uint32_t))));
  count_ = magnitude == 0 ? 0 : (size_t{1} << magnitude) - random_() % (size_t{1} << (magnitude - 1));
  const bool parted = kind == Kind::kAllGather || kind == Kind::kReduceScatter;
  if (parted) count_ /= static_cast<size_t>(rank_.size);
  // One operation in four mixes shared and plain memory of different ranks.
  const int sharing = pick(4);
  const bool shared = sharing == 3 ? (number_ + static_cast<uint32_t>(me_)) % 2 == 0 : sharing != 0;
  send_ = place(plain_send_, shared_send_, shared);
  recv_ = kind != Kind::kAllReduce || pick(2) == 0 ? place(plain_recv_, shared_recv_, shared) : send_;
  fill(send_, count_, kind == Kind::kReduceScatter ? rank_.size : 1);
  began_us_ = now_us();
  const dsc_result_t result = run(kind);
  if (result == DSC_OK) check(kind);
  return result;
}

// Every type with every operation that it has, compared with a serial reference.
dsc_result_t RandomWork::step_typed() {
  dsc_dtype_t dtype = 0;
  dsc_op_t op = 0;
  do {
    dtype = DSC_DTYPE_I8 + pick(DSC_DTYPE_BOOL);
    op = DSC_OP_SUM + pick(DSC_OP_BXOR);
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

dsc_result_t RandomWork::run(Kind kind) {
  dsc_work_t* work = nullptr;
  dsc_work_t** handle = async_ ? &work : nullptr;
  dsc_result_t result = DSC_OK;
  switch (kind) {
    case Kind::kAllReduce:
      result = dsc_all_reduce(comm(), send_, recv_, count_, DSC_DTYPE_U32, DSC_OP_SUM, nullptr, handle);
      break;
    case Kind::kBroadcast:
      result = dsc_broadcast(comm(), send_, recv_, count_, DSC_DTYPE_U32, root_, nullptr, handle);
      break;
    case Kind::kAllGather:
      result = dsc_all_gather(comm(), send_, recv_, count_, DSC_DTYPE_U32, nullptr, handle);
      break;
    case Kind::kReduceScatter:
      result = dsc_reduce_scatter(comm(), send_, recv_, count_, DSC_DTYPE_U32, DSC_OP_SUM, nullptr, handle);
      break;
    case Kind::kRing:
      return run_ring();
    default:
      result = dsc_barrier(comm(), nullptr, handle);
  }
  return async_ ? wait_for(result, work) : result;
}

// To the next rank and from the one before, both at once.
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
  // The one that met the failure first tells its cause.
  return received == DSC_OK || received == DSC_ERR_REVOKED ? sent : received;
}

bool RandomWork::expect(const uint32_t* found, size_t count, uint32_t first, const char* what) {
  uint32_t difference = 0;
  for (size_t i = 0; i < count; ++i) difference |= found[i] ^ (first + static_cast<uint32_t>(i) * kStride);
  if (difference == 0) return true;
  size_t i = 0;
  while (found[i] == first + static_cast<uint32_t>(i) * kStride) ++i;
  wrong_ = format("operation %u, %s of %zu elements: element %zu is %08x, expected %08x", number_, what,
                  count, i, found[i], first + static_cast<uint32_t>(i) * kStride);
  return false;
}

void RandomWork::check(Kind kind) {
  const int size = rank_.size;
  const uint32_t parts = static_cast<uint32_t>(size);
  uint32_t sum = 0;
  for (int rank = 0; rank < size; ++rank) sum += element(rank, 0);
  switch (kind) {
    case Kind::kAllReduce: {
      uint32_t difference = 0;
      for (size_t i = 0; i < count_; ++i)
        difference |= recv_[i] ^ (sum + parts * static_cast<uint32_t>(i) * kStride);
      if (difference != 0)
        wrong_ = format("operation %u: all_reduce of %zu elements is wrong", number_, count_);
      return;
    }
    case Kind::kReduceScatter: {
      const size_t first = static_cast<size_t>(me_) * count_;
      uint32_t difference = 0;
      for (size_t i = 0; i < count_; ++i)
        difference |= recv_[i] ^ (sum + parts * static_cast<uint32_t>(first + i) * kStride);
      if (difference != 0)
        wrong_ = format("operation %u: reduce_scatter of %zu elements is wrong", number_, count_);
      return;
    }
    case Kind::kBroadcast:
      expect(recv_, count_, element(root_, 0), "broadcast");
      return;
    case Kind::kAllGather:
      for (int rank = 0; rank < size; ++rank)
        if (!expect(recv_ + static_cast<size_t>(rank) * count_, count_, element(rank, 0), "all_gather"))
          return;
      return;
    case Kind::kRing:
      expect(recv_, count_, element((me_ + size - 1) % size, 0), "message");
      return;
    default:
      return;
  }
}

}  // namespace fault
