#include "host/staged.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "host/claim.hpp"

namespace dsc {
namespace {

constexpr size_t kMinChunkBytes = size_t{8} << 10;
constexpr size_t kLineElements = 64;

}  // namespace

size_t Staged::part_elements(const Transfer& transfer, const Geometry& geometry) noexcept {
  const size_t fit = geometry.stage_bytes / (transfer.element_bytes * transfer.parts);
  const size_t whole = fit >= kLineElements ? fit / kLineElements * kLineElements : fit;
  // Where nobody knows the longest block before all have come, the part must not depend on it.
  if (transfer.send_blocks && transfer.recv_blocks) return whole;
  return std::min(transfer.longest, whole);
}

Staged::Staged(Group& group, const Transfer& transfer, bool shown, NonFinite* found)
    : group_(group),
      transfer_(transfer),
      part_(part_elements(transfer, group.geometry())),
      claimed_((transfer.pattern == Pattern::kAllReduce || transfer.pattern == Pattern::kReduce) &&
               transfer.bytes_of(transfer.count) * static_cast<size_t>(transfer.size) >
                   group.tuning().direct_bytes),
      // Where every rank reduces everything, one of them tells.
      found_(claimed_ || transfer.pattern != Pattern::kAllReduce || transfer.rank == 0 ? found : nullptr),
      phase_(shown ? Phase::kMeet : Phase::kShow) {}

// Elements of a block from `first` on that fit into one part.
size_t Staged::share(size_t count, size_t first, size_t part) noexcept {
  return first < count ? std::min(part, count - first) : 0;
}

void Staged::fill(const Transfer& transfer, std::byte* stage, size_t first, size_t part) {
  if (!transfer.sends(transfer.rank)) return;
  if (!transfer.is_divided()) {
    const size_t elements = share(transfer.outgoing(0).count, first, part);
    if (elements > 0) copy(stage, transfer.send_at(first), transfer.bytes_of(elements), false);
    return;
  }
  for (int receiver = 0; receiver < transfer.size; ++receiver) {
    if (receiver == transfer.rank) continue;  // read where it is
    const Block block = transfer.outgoing(receiver);
    const size_t elements = share(block.count, first, part);
    if (elements > 0)
      copy(stage + transfer.bytes_of(static_cast<size_t>(receiver) * part),
           transfer.send_at(block.from + first), transfer.bytes_of(elements), false);
  }
}

void Staged::fill_first(const Transfer& transfer, const Geometry& geometry, std::byte* stage) {
  if (transfer.pattern == Pattern::kNothing) return;
  fill(transfer, stage, 0, part_elements(transfer, geometry));
}

size_t Staged::elements() const noexcept { return share(transfer_.longest, first_, part_); }

Progress Staged::step() {
  if (phase_ == Phase::kShow) {
    show(first_);
    phase_ = Phase::kMeet;
  }
  if (phase_ == Phase::kMeet) {
    if (!group_.all_arrived()) return Progress::kPending;
    tick_ = group_.tick();
    if (claimed_) {
      work_on_chunks();
      // Shown before the wait for the others' chunks: by the time they are done, all have shown the next part
      // too.
      if (first_ + elements() < transfer_.longest) show(first_ + elements());
      phase_ = Phase::kAwaitChunks;
    } else {
      move_directly();
      phase_ = Phase::kShow;
    }
  }
  if (phase_ == Phase::kAwaitChunks) {
    if (transfer_.receives(transfer_.rank)) {
      if (!chunks_complete(group_.record(tick_).done, tick_, chunks_)) return Progress::kPending;
      copy(transfer_.recv_at(first_), group_.result_stage(tick_), transfer_.bytes_of(elements()), false);
    }
    phase_ = Phase::kMeet;
  }
  first_ += elements();
  return first_ < transfer_.longest ? Progress::kMoved : Progress::kDone;
}

void Staged::show(size_t first) {
  fill(transfer_, group_.next_stage(), first, part_);
  group_.arrive();
}

// `index` is where the elements stand in the send buffers.
void Staged::reduce_stages(size_t stage_offset, size_t elements, size_t index, void* target,
                           const void* own) const {
  constexpr int kInline = 16;
  std::array<const void*, kInline> few;
  std::vector<const void*> many;
  if (transfer_.size > kInline) many.resize(static_cast<size_t>(transfer_.size));
  const void** sources = transfer_.size > kInline ? many.data() : few.data();
  for (int member = 0; member < transfer_.size; ++member)
    sources[member] = group_.stage(member, tick_) + transfer_.bytes_of(stage_offset);
  // This rank's own part is read where it came from: it is as near, and its stage stays the others'.
  if (own) sources[transfer_.rank] = own;
  NonFinite found;
  reduce(transfer_.reduce, sources, transfer_.size, &target, 1, elements, found_ ? &found : nullptr);
  if (found_) found_->add(found, index);
}

void Staged::move_directly() {
  if (!transfer_.receives(transfer_.rank)) return;
  if (transfer_.reduces()) {
    const Block own = transfer_.incoming(transfer_.rank);
    const size_t offset = transfer_.is_divided() ? static_cast<size_t>(transfer_.rank) * part_ : 0;
    if (const size_t length = share(own.count, first_, part_); length > 0)
      reduce_stages(offset, length, own.from + first_, transfer_.recv_at(first_),
                    transfer_.send_at(own.from + first_));
    return;
  }
  for (int sender = 0; sender < transfer_.size; ++sender)
    if (transfer_.sends(sender)) copy_block(sender);
}

void Staged::copy_block(int sender) {
  const Block block = transfer_.incoming(sender);
  const size_t length = share(block.count, first_, part_);
  if (length == 0) return;
  const size_t offset = transfer_.is_divided() ? static_cast<size_t>(transfer_.rank) * part_ : 0;
  const void* source = sender == transfer_.rank ? transfer_.send_at(block.from + first_)
                                                : group_.stage(sender, tick_) + transfer_.bytes_of(offset);
  copy(transfer_.recv_at(block.to + first_), source, transfer_.bytes_of(length), false);
}

void Staged::work_on_chunks() {
  const size_t bytes = transfer_.bytes_of(elements());
  const size_t fair = bytes / (2 * static_cast<size_t>(transfer_.size));
  const size_t most = group_.tuning().stage_chunk_bytes;
  chunk_ = std::clamp(fair, std::min(kMinChunkBytes, most), most) / transfer_.element_bytes;
  chunks_ = (elements() + chunk_ - 1) / chunk_;
  TickRecord& record = group_.record(tick_);
  uint64_t finished = 0;
  for (;;) {
    const uint64_t chunk = claim_chunk(record.claim, tick_, chunks_);
    if (chunk == kNoChunk) break;
    const size_t start = chunk * chunk_;
    reduce_stages(start, std::min(chunk_, elements() - start), first_ + start,
                  group_.result_stage(tick_) + transfer_.bytes_of(start), transfer_.send_at(first_ + start));
    ++finished;
  }
  if (finished > 0 && complete_chunks(record.done, tick_, finished, chunks_)) group_.ring_all();
}

}  // namespace dsc
