#include "engine_host/single_copy.hpp"

#include <algorithm>
#include <atomic>

#include "base/guard.hpp"
#include "engine_host/readers.hpp"
#include "engine_host/shares.hpp"
#include "engine_host/zero_copy.hpp"

namespace dsc {
namespace {

constexpr size_t kMinRunBytes = size_t{2} << 10;      // the kernel needs a while for each run
constexpr size_t kMinScratchBytes = size_t{4} << 10;  // per member
constexpr size_t kMostScratchBytes = size_t{128} << 10;

size_t scratch_bytes(const Group& group, const Transfer& transfer) noexcept {
  return std::min(group.geometry().stage_bytes / static_cast<size_t>(transfer.size - 1), kMostScratchBytes);
}

// Returns whether one member reads enough from another. If this rank does not know the lengths yet, it judges
// by its own buffers.
bool is_large(const Group& group, const Transfer& transfer) noexcept {
  const auto members = static_cast<size_t>(transfer.size);
  const bool knows = transfer.knows_all();
  const size_t bytes =
      knows ? transfer.bytes_of(transfer.longest) : std::max(transfer.send_bytes, transfer.recv_bytes);
  const bool shared = !knows || transfer.pattern == Pattern::kAllReduce;
  return (shared ? bytes / members : bytes) >= group.tuning().single_copy_min_bytes;
}

bool has_long_runs(const Transfer& transfer) noexcept {
  if (!transfer.send_columns && !transfer.recv_columns) return true;
  size_t shortest = SIZE_MAX;
  for (int member = 0; member < transfer.size; ++member)
    shortest = std::min({shortest, transfer.outgoing(member).from_rows.length,
                         transfer.received_from(member).to_rows.length});
  return shortest >= kMinRunBytes / transfer.element_bytes;
}

// If more than two ranks reduce to one, it is faster if they share the work.
bool suits(const Group& group, const Transfer& transfer) noexcept {
  if (transfer.size < 2 || transfer.pattern == Pattern::kNothing) return false;
  if (transfer.pattern == Pattern::kReduce && transfer.size > 2) return false;
  if (transfer.reduces() && scratch_bytes(group, transfer) < kMinScratchBytes) return false;
  return !ZeroCopy::overwrites_senders(transfer) && has_long_runs(transfer);
}

}  // namespace

Progress read_member(const Group& group, int member, PeerRead& parts) {
  bool alive = false;
  capture([&] { alive = group.process_of(member).memory.read(parts); },
          [&](dsc_result_t code, const char* text) {
            fail(code, "the buffer of %s: %s", group.describe_member(member).c_str(), text);
          });
  if (!alive) return Progress::kPending;  // the monitor reports the end of the process soon
  std::atomic_thread_fence(std::memory_order_acquire);
  return group.revoked() ? Progress::kFailed : Progress::kMoved;
}

ReadableMemory readable_memory(const void* buffer, size_t bytes) noexcept {
  constexpr uint64_t kAnywhere = 1;  // nobody reads an empty buffer
  if (bytes == 0) return {kAnywhere, 0};
  return others_can_read(buffer, bytes) ? ReadableMemory{reinterpret_cast<uint64_t>(buffer), bytes}
                                        : ReadableMemory{0, 0};
}

bool SingleCopy::offer(const Group& group, const Transfer& transfer, Slot& slot) noexcept {
  slot.send_memory = slot.recv_memory = {0, 0};
  const bool large = is_large(group, transfer);
  if (!suits(group, transfer) || (!large && transfer.knows_all())) return false;
  if (transfer.sends(transfer.rank)) slot.send_memory = readable_memory(transfer.send, transfer.send_bytes);
  if (transfer.pattern == Pattern::kAllReduce)
    slot.recv_memory = readable_memory(transfer.recv, transfer.recv_bytes);
  return large && slot.send_memory.address != 0;
}

bool SingleCopy::possible(const Group& group, const Transfer& transfer) noexcept {
  if (!is_large(group, transfer)) return false;
  for (int member = 0; member < transfer.size; ++member) {
    const Slot& slot = group.slot(member, group.epoch());
    if (transfer.sends(member) && slot.send_memory.address == 0) return false;
    if (transfer.pattern == Pattern::kAllReduce && slot.recv_memory.address == 0) return false;
  }
  return true;
}

SingleCopy::SingleCopy(Group& group, const Transfer& transfer, NonFinite* found)
    : group_(group),
      transfer_(transfer),
      spec_(transfer.reduce),
      found_(found),
      sources_(static_cast<size_t>(transfer.size)),
      results_(combines() ? static_cast<size_t>(transfer.size) : 0),
      chunk_((transfer.reduces() ? scratch_bytes(group, transfer) : group.tuning().zero_copy_chunk_bytes) /
             transfer.element_bytes / kLineElements * kLineElements),
      scratch_(group.stage(transfer.rank, group.epoch() + 1)),
      phase_(transfer.reduces() && transfer.receives(transfer.rank) ? Phase::kReduce : Phase::kCopy) {
  find_buffers();
}

// Published values are copied once and then checked, because a corrupted or hostile peer may change them.
void SingleCopy::find_buffers() {
  const auto locate = [this](int member, ReadableMemory memory, size_t elements) {
    if (transfer_.bytes_of(elements) > memory.bytes)
      fail(DSC_ERR_PROTOCOL, "%s announced a buffer of %zu bytes, expected %zu",
           group_.describe_member(member).c_str(), static_cast<size_t>(memory.bytes),
           transfer_.bytes_of(elements));
    return memory.address;
  };
  for (int member = 0; member < transfer_.size; ++member) {
    const auto at = static_cast<size_t>(member);
    const Slot& slot = group_.slot(member, group_.epoch());
    sources_[at] =
        transfer_.sends(member) ? locate(member, slot.send_memory, transfer_.elements_read_of(member)) : 0;
    if (combines()) results_[at] = locate(member, slot.recv_memory, transfer_.count);
  }
}

Progress SingleCopy::step() {
  if (phase_ == Phase::kReduce) {
    const Progress progress = reduce_piece();
    if (progress != Progress::kDone) return progress;
    group_.arrive();  // this rank's result can be read
    done_ = 0;
    turn_ = 1;
    phase_ = combines() ? Phase::kMeet : Phase::kEnd;
  }
  if (phase_ == Phase::kMeet) {
    if (!group_.all_arrived()) return Progress::kPending;
    phase_ = Phase::kCopy;
  }
  if (phase_ == Phase::kCopy) {
    const Progress progress = copy_piece();
    if (progress != Progress::kDone) return progress;
    group_.arrive();  // this rank has read all its data
    phase_ = Phase::kEnd;
  }
  return readers_arrived(group_, transfer_) ? Progress::kDone : Progress::kPending;
}

std::byte* SingleCopy::scratch_of(int member) const noexcept {
  const int index = member < transfer_.rank ? member : member - 1;
  return scratch_ + static_cast<size_t>(index) * transfer_.bytes_of(chunk_);
}

Block SingleCopy::shared_block(int member) const noexcept {
  const Share share = share_of(member, transfer_.size, transfer_.count);
  return {share.first, share.first, share.elements};
}

// Reads elements of a block, beginning with element done_. With `packed`, they are put there one after the
// other, and otherwise at their places in the receive buffer.
Progress SingleCopy::read_runs(int member, uint64_t source, const Block& block, size_t elements,
                               std::byte* packed) {
  PeerRead parts;
  Progress progress = Progress::kMoved;
  for_each_run(block, done_, elements, [&](size_t from, size_t to, size_t run) {
    if (parts.full() && progress == Progress::kMoved) progress = read_member(group_, member, parts);
    if (progress != Progress::kMoved) return;
    parts.add(packed ? packed : transfer_.recv_at(to), source + transfer_.bytes_of(from),
              transfer_.bytes_of(run));
    if (packed) packed += transfer_.bytes_of(run);
  });
  return progress == Progress::kMoved ? read_member(group_, member, parts) : progress;
}

Progress SingleCopy::reduce_piece() {
  const Block block = combines() ? shared_block(transfer_.rank) : transfer_.incoming(transfer_.rank);
  if (done_ >= block.count) return Progress::kDone;
  const size_t elements = std::min(chunk_, block.count - done_);
  const Busy busy(group_);
  for (int member = 0; member < transfer_.size; ++member) {
    if (member == transfer_.rank) continue;
    const Progress progress =
        read_runs(member, sources_[static_cast<size_t>(member)], block, elements, scratch_of(member));
    if (progress != Progress::kMoved) return progress;
  }
  size_t in_scratch = 0;
  for_each_run(block, done_, elements, [&](size_t from, size_t to, size_t run) {
    reduce_elements(from, to, run, in_scratch);
    in_scratch += run;
  });
  done_ += elements;
  return Progress::kMoved;
}

void SingleCopy::reduce_elements(size_t index, size_t to, size_t elements, size_t in_scratch) {
  PerMember<const void*> from(sources_.size());
  for (int member = 0; member < transfer_.size; ++member)
    from[static_cast<size_t>(member)] = member == transfer_.rank
                                            ? transfer_.send_at(index)
                                            : scratch_of(member) + transfer_.bytes_of(in_scratch);
  void* const target = transfer_.recv_at(to);
  NonFinite found;
  reduce(spec_, from.data(), transfer_.size, &target, 1, elements, found_ ? &found : nullptr);
  if (found_) found_->add(found, index);
}

Block SingleCopy::block_from(int sender) const noexcept {
  if (combines()) return shared_block(sender);
  return transfer_.reduces() || !transfer_.receives(transfer_.rank) || !transfer_.sends(sender)
             ? Block{}
             : transfer_.incoming(sender);
}

// Handles one chunk. Begins with this rank's own block, and then with the sender that follows this rank, so
// that the ranks do not all read the same memory at the same time.
Progress SingleCopy::copy_piece() {
  for (; turn_ < transfer_.size; ++turn_, done_ = 0) {
    const int sender = (transfer_.rank + turn_) % transfer_.size;
    const Block block = block_from(sender);
    if (done_ >= block.count) continue;
    const size_t elements = std::min(chunk_, block.count - done_);
    const Busy busy(group_);
    const Progress progress = copy_from(sender, block, elements);
    if (progress == Progress::kMoved) done_ += elements;
    return progress;
  }
  return Progress::kDone;
}

Progress SingleCopy::copy_from(int sender, const Block& block, size_t elements) {
  const auto at = static_cast<size_t>(sender);
  if (sender != transfer_.rank)
    return read_runs(sender, combines() ? results_[at] : sources_[at], block, elements, nullptr);
  for_each_run(block, done_, elements, [&](size_t from, size_t to, size_t run) {
    copy(transfer_.recv_at(to), transfer_.send_at(from), transfer_.bytes_of(run), false);
  });
  return Progress::kMoved;
}

}  // namespace dsc
