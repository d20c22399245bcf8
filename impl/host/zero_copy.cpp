#include "host/zero_copy.hpp"

#include <unistd.h>

#include <algorithm>

#include "base/log.hpp"
#include "base/process_guard.hpp"
#include "host/claim.hpp"

namespace dsc {
namespace {

constexpr size_t kMinChunkBytes = size_t{16} << 10;
constexpr size_t kMaxChunkBytes = size_t{512} << 10;
constexpr size_t kLineElements = 64;

// Beyond it, what is written is gone from the cache before it is read again.
size_t streaming_bytes() noexcept {
  static const size_t bytes = [] {
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    constexpr size_t kMost = size_t{32} << 20;
    return cache > 0 ? std::min(static_cast<size_t>(cache), kMost) : kMost;
  }();
  return bytes;
}

bool uses_recv(Pattern pattern) noexcept { return pattern == Pattern::kAllReduce; }

}  // namespace

OthersMemory::OthersMemory(Group& group) noexcept
    : group_(group), entered_([&group] {
        group.state(group.rank()).working.fetch_add(1, std::memory_order_seq_cst);
        return !group.revoked();
      }()) {}

OthersMemory::~OthersMemory() {
  group_.state(group_.rank()).working.fetch_sub(1, std::memory_order_seq_cst);
  if (group_.revoked()) group_.ring_all();  // somebody may wait for this rank to be out
}

bool settle_run_state(std::atomic<uint64_t>& word, uint64_t tick, RunState wanted) noexcept {
  const uint64_t target = tick << 2 | static_cast<uint64_t>(wanted);
  uint64_t seen = word.load(std::memory_order_acquire);
  while (seen >> 2 < tick)
    if (word.compare_exchange_weak(seen, target, std::memory_order_seq_cst, std::memory_order_acquire))
      return true;
  return seen == target;
}

bool ZeroCopy::possible(const Group& group, const Transfer& transfer) noexcept {
  if (!worthwhile(transfer)) return false;
  const int first = transfer.pattern == Pattern::kBroadcast ? transfer.root : 0;
  const uint64_t send_segment = group.slot(first, group.tick()).send.segment;
  const uint64_t recv_segment = group.slot(0, group.tick()).recv.segment;
  if (send_segment == 0 || (uses_recv(transfer.pattern) && recv_segment == 0)) return false;
  for (int member = 0; member < transfer.size; ++member) {
    const Slot& slot = group.slot(member, group.tick());
    // A broadcast's receivers show where they receive: only whoever holds the segment can be sure to reach
    // the root's.
    const uint64_t shown = transfer.pattern == Pattern::kBroadcast && member != transfer.root
                               ? slot.recv.segment
                               : slot.send.segment;
    if (shown != send_segment) return false;
    if (uses_recv(transfer.pattern) && slot.recv.segment != recv_segment) return false;
  }
  return true;
}

ZeroCopy::ZeroCopy(Group& group, const Transfer& transfer) : group_(group), transfer_(transfer) {
  const MemoryRegistry& memory = group.world().memory();
  const int first = transfer.pattern == Pattern::kBroadcast ? transfer.root : 0;
  send_memory_ = memory.get(group.slot(first, group.tick()).send.segment);
  if (uses_recv(transfer.pattern)) recv_memory_ = memory.get(group.slot(0, group.tick()).recv.segment);
  if (!send_memory_ || (uses_recv(transfer.pattern) && !recv_memory_))
    fail(DSC_ERR_STATE, "shared memory was freed while an operation used it");
  const size_t send_bytes = transfer.bytes_of(transfer.count) * transfer.parts;
  for (int member = 0; member < transfer.size; ++member) {
    const Slot& slot = group.slot(member, group.tick());
    const int world_rank = group.world_rank(member);
    const bool sends = transfer.pattern != Pattern::kBroadcast || member == transfer.root;
    const SharedPlace send = slot.send;  // copied once: a rank gone mad may change it
    const SharedPlace recv = slot.recv;
    if (sends && !send_memory_->holds(world_rank, send.offset, send_bytes))
      fail(DSC_ERR_PROTOCOL, "%s shows a buffer outside its memory", group.describe_member(member).c_str());
    sources_.push_back(sends ? send_memory_->base(world_rank) + send.offset : nullptr);
    if (!recv_memory_) continue;
    if (!recv_memory_->holds(world_rank, recv.offset, send_bytes))
      fail(DSC_ERR_PROTOCOL, "%s shows a buffer outside its memory", group.describe_member(member).c_str());
    targets_.push_back(recv_memory_->base(world_rank) + recv.offset);
  }
  const size_t members = static_cast<size_t>(transfer.size);
  from_.resize(members);
  to_.resize(members);
  transfer_.reduce.non_temporal = transfer.bytes_of(transfer.count) * members >= streaming_bytes();
  const size_t fair = transfer.bytes_of(transfer.count) / (reads_only() ? 1 : 2 * members);
  const size_t elements = std::clamp(fair, kMinChunkBytes, kMaxChunkBytes) / transfer.element_bytes;
  chunk_ = std::max(kLineElements, elements / kLineElements * kLineElements);
  chunk_ = std::max(chunk_, transfer.count / kMaxChunks + 1);
  chunks_ = (transfer.count + chunk_ - 1) / chunk_;
}

Progress ZeroCopy::step() {
  if (phase_ == Phase::kWork) {
    const Progress progress = work();
    if (progress != Progress::kDone) return progress;
    if (!reads_only()) {
      phase_ = Phase::kAwaitChunks;
    } else {
      group_.arrive();  // this rank has read what it needs
      if (transfer_.pattern == Pattern::kBroadcast && transfer_.rank != transfer_.root) return finish();
      phase_ = Phase::kMeet;
    }
  }
  const bool over = phase_ == Phase::kMeet
                        ? group_.all_arrived()
                        : chunks_complete(group_.record(group_.tick()).done, group_.tick(), chunks_);
  return over ? finish() : Progress::kPending;
}

// Another group's failure may have made this rank's memory private while others wrote what they took for it.
Progress ZeroCopy::finish() noexcept {
  if (!send_memory_->detached.load() && !(recv_memory_ && recv_memory_->detached.load()))
    return Progress::kDone;
  Failure cause;
  cause.code = DSC_ERR_PEER_STALLED;
  cause.text = group_.describe_member(group_.rank()) + " lost its shared memory to a rank that does not run";
  group_.revoke(cause);
  return Progress::kFailed;
}

// One chunk; done when none is left to take.
Progress ZeroCopy::work() {
  TickRecord& record = group_.record(group_.tick());
  const OthersMemory others(group_);
  if (!others.entered()) return Progress::kFailed;
  const uint64_t chunk = reads_only() ? (next_chunk_ < chunks_ ? next_chunk_++ : kNoChunk)
                                      : claim_chunk(record.claim, group_.tick(), chunks_);
  if (chunk == kNoChunk) return Progress::kDone;
  const size_t first = chunk * chunk_;
  work_on_chunk(first, std::min(chunk_, transfer_.count - first));
  if (!reads_only() && complete_chunks(record.done, group_.tick(), 1, chunks_)) group_.ring_all();
  return Progress::kMoved;
}

void ZeroCopy::work_on_chunk(size_t first, size_t elements) {
  const size_t members = static_cast<size_t>(transfer_.size);
  const size_t offset = transfer_.bytes_of(first);
  const bool streaming = transfer_.reduce.non_temporal;
  const auto source = [&](size_t member) { return static_cast<const std::byte*>(sources_[member]) + offset; };
  if (transfer_.pattern == Pattern::kBroadcast) {
    const std::byte* from = source(static_cast<size_t>(transfer_.root));
    if (from != transfer_.recv_at(first))
      copy(transfer_.recv_at(first), from, transfer_.bytes_of(elements), streaming);
    return;
  }
  if (transfer_.pattern == Pattern::kAllGather) {
    for (size_t member = 0; member < members; ++member) {
      std::byte* target = transfer_.recv_at(member * transfer_.count + first);
      if (target != source(member)) copy(target, source(member), transfer_.bytes_of(elements), streaming);
    }
    return;
  }
  const size_t part = transfer_.pattern == Pattern::kReduceScatter
                          ? static_cast<size_t>(transfer_.rank) * transfer_.count
                          : 0;
  for (size_t member = 0; member < members; ++member)
    from_[member] = source(member) + transfer_.bytes_of(part);
  if (transfer_.pattern == Pattern::kReduceScatter) {
    void* target = transfer_.recv_at(first);
    reduce(transfer_.reduce, from_.data(), transfer_.size, &target, 1, elements);
    return;
  }
  for (size_t member = 0; member < members; ++member)
    to_[member] = static_cast<std::byte*>(targets_[member]) + offset;
  reduce(transfer_.reduce, from_.data(), transfer_.size, to_.data(), transfer_.size, elements);
}

bool Departure::others_work(bool& only_strangers) const noexcept {
  bool any = false;
  only_strangers = true;
  for (int member = 0; member < group_.size(); ++member) {
    if (member == group_.rank() || group_.state(member).working.load(std::memory_order_seq_cst) == 0)
      continue;
    const PeerProcess& process = group_.process_of(member);
    if (process.gone.load() != DSC_OK) continue;  // it writes no more
    any = true;
    if (process.own) only_strangers = false;  // a thread of this process: it shares the mapping, and it runs
  }
  return any;
}

bool Departure::done(const void* send, size_t send_bytes, const void* recv, size_t recv_bytes) noexcept {
  bool only_strangers = true;
  if (!others_work(only_strangers)) return true;
  if (!only_strangers || !patience_.passed()) return false;
  const bool detached = call_out([&] {
    detach(send, send_bytes);
    detach(recv, recv_bytes);
  });
  if (!detached) patience_ = Deadline::after_ms(100);  // no memory now; tried again
  return detached;
}

void Departure::detach(const void* buffer, size_t bytes) {
  const auto allocation = bytes == 0 ? nullptr : group_.world().memory().holder(buffer);
  if (!allocation) return;
  allocation->detach(buffer, bytes);
  log(DSC_LOG_WARN,
      "%zu bytes of shared memory became private: a rank that does not run may still write them", bytes);
}

}  // namespace dsc
