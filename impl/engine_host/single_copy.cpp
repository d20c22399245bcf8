#include "engine_host/single_copy.hpp"

#include <algorithm>
#include <atomic>

#include "base/guard.hpp"
#include "engine_host/readers.hpp"
#include "engine_host/small.hpp"
#include "engine_host/zero_copy.hpp"

namespace dsc {
namespace {

constexpr size_t kMinRunBytes = size_t{2} << 10;  // the kernel needs a while for each run

// Returns whether one member reads enough from another. If this rank does not know the lengths yet, it judges
// by its own buffers. A SmallCollective of another rank publishes no addresses.
bool is_large(const Group& group, const Transfer& transfer) noexcept {
  const size_t bytes = transfer.knows_all() ? transfer.bytes_of(transfer.longest)
                                            : std::max(transfer.send_bytes, transfer.recv_bytes) /
                                                  static_cast<size_t>(transfer.size);
  return bytes >= group.tuning().single_copy_min_bytes &&
         (transfer.send_blocks || transfer.recv_blocks ||
          !SmallCollective::fits(group, transfer.pattern, bytes));
}

bool has_long_runs(const Transfer& transfer) noexcept {
  if (!transfer.send_columns && !transfer.recv_columns) return true;
  size_t shortest = SIZE_MAX;
  for (int member = 0; member < transfer.size; ++member) {
    if (const Block sent = transfer.outgoing(member); sent.count > 0)
      shortest = std::min(shortest, sent.from_rows.length);
    if (const Block received = transfer.received_from(member); received.count > 0)
      shortest = std::min(shortest, received.to_rows.length);
  }
  return shortest >= kMinRunBytes / transfer.element_bytes;
}

bool suits(const Transfer& transfer) noexcept {
  return transfer.size > 1 && transfer.pattern != Pattern::kNothing && !transfer.reduces() &&
         !ZeroCopy::overwrites_senders(transfer) && has_long_runs(transfer);
}

}  // namespace

Progress read_member(const Group& group, int member, PeerRead& parts) {
  bool alive = false, failed = false;
  capture([&] { alive = group.process_of(member).memory.read(parts); },
          [&](dsc_result_t code, const char* text) {
            failed = group.revoked();  // then the owner may have unmapped the memory
            if (!failed) fail(code, "data of %s: %s", group.describe_member(member).c_str(), text);
          });
  // Orders the reads of the data before the check. An owner that gives up fails the group before it changes
  // the data.
  std::atomic_thread_fence(std::memory_order_acquire);
  if (failed || group.revoked()) return Progress::kFailed;
  return alive ? Progress::kMoved : Progress::kPending;  // the monitor reports the end of the process soon
}

ReadableMemory readable_memory(const void* buffer, size_t bytes) noexcept {
  constexpr uint64_t kAnywhere = 1;  // an empty buffer is never read
  if (bytes == 0) return {kAnywhere, 0};
  return others_can_read(buffer, bytes) ? ReadableMemory{reinterpret_cast<uint64_t>(buffer), bytes}
                                        : ReadableMemory{0, 0};
}

bool SingleCopy::offer(const Group& group, const Transfer& transfer, Slot& slot) noexcept {
  slot.send_memory = {0, 0};
  if (group.tuning().single_copy_min_bytes == kNoLimit) return false;
  const bool large = is_large(group, transfer);
  if (!suits(transfer) || (!large && transfer.knows_all())) return false;
  if (transfer.sends(transfer.rank)) slot.send_memory = readable_memory(transfer.send, transfer.send_bytes);
  return large && slot.send_memory.address != 0;
}

bool SingleCopy::possible(const Group& group, const Transfer& transfer) noexcept {
  if (!is_large(group, transfer)) return false;
  for (int member = 0; member < transfer.size; ++member)
    if (transfer.sends(member) && group.slot(member, group.epoch()).send_memory.address == 0) return false;
  return true;
}

SingleCopy::SingleCopy(Group& group, const Transfer& transfer)
    : group_(group),
      transfer_(transfer),
      sources_(static_cast<size_t>(transfer.size)),
      chunk_(std::max(group.tuning().zero_copy_chunk_bytes / transfer.element_bytes, size_t{1})) {
  find_buffers();
}

// Published values are copied once and then checked, because a corrupted or hostile peer may change them.
void SingleCopy::find_buffers() {
  for (int member = 0; member < transfer_.size; ++member) {
    if (!transfer_.sends(member)) continue;
    const ReadableMemory memory = group_.slot(member, group_.epoch()).send_memory;
    const size_t needed = transfer_.bytes_of(transfer_.elements_read_of(member));
    if (needed > memory.bytes)
      fail(DSC_ERR_PROTOCOL, "%s announced a buffer of %zu bytes, expected %zu",
           group_.describe_member(member).c_str(), static_cast<size_t>(memory.bytes), needed);
    sources_[static_cast<size_t>(member)] = memory.address;
  }
}

Progress SingleCopy::step() {
  if (!has_all_) {
    const Progress progress = copy_piece();
    if (progress != Progress::kDone) return progress;
    group_.arrive();  // this rank has read all its data
    has_all_ = true;
  }
  return readers_arrived(group_, transfer_) ? Progress::kDone : Progress::kPending;
}

// Handles one chunk. Begins with this rank's own block, and then with the sender that follows this rank, so
// that the ranks do not all read the same memory at the same time.
Progress SingleCopy::copy_piece() {
  if (!transfer_.receives(transfer_.rank)) return Progress::kDone;
  for (; turn_ < transfer_.size; ++turn_, done_ = 0) {
    const int sender = (transfer_.rank + turn_) % transfer_.size;
    if (!transfer_.sends(sender)) continue;
    const Block block = transfer_.incoming(sender);
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
  const bool own = sender == transfer_.rank;
  PeerRead parts;
  Progress progress = Progress::kMoved;
  for_each_run(block, done_, elements, [&](size_t from, size_t to, size_t run) {
    const size_t bytes = transfer_.bytes_of(run);
    if (own) return copy_bytes(transfer_.recv_at(to), transfer_.send_at(from), bytes);
    if (parts.full() && progress == Progress::kMoved) progress = read_member(group_, sender, parts);
    if (progress == Progress::kMoved)
      parts.add(transfer_.recv_at(to), sources_[static_cast<size_t>(sender)] + transfer_.bytes_of(from),
                bytes);
  });
  return own || progress != Progress::kMoved ? progress : read_member(group_, sender, parts);
}

}  // namespace dsc
