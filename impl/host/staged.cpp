#include "host/staged.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "host/claim.hpp"

namespace dsc {
namespace {

// Up to here every rank reduces everything itself: that is cheaper than a second meeting.
constexpr size_t kDirectBytes = size_t{128} << 10;
constexpr size_t kMinChunkBytes = size_t{8} << 10;
constexpr size_t kMaxChunkBytes = size_t{64} << 10;
constexpr size_t kLineElements = 64;

}  // namespace

size_t Staged::part_elements(const Transfer& transfer, const Geometry& geometry) noexcept {
  const size_t fit = geometry.stage_bytes / (transfer.element_bytes * transfer.parts);
  return std::min(transfer.count, fit >= kLineElements ? fit / kLineElements * kLineElements : fit);
}

Staged::Staged(Group& group, const Transfer& transfer, bool shown)
    : group_(group),
      transfer_(transfer),
      part_(part_elements(transfer, group.geometry())),
      claimed_(transfer.pattern == Pattern::kAllReduce && transfer.size > 2 &&
               transfer.bytes_of(transfer.count) * static_cast<size_t>(transfer.size) > kDirectBytes),
      phase_(shown ? Phase::kMeet : Phase::kShow) {}

void Staged::fill(const Transfer& transfer, std::byte* stage, size_t first, size_t elements, size_t stride) {
  if (transfer.pattern == Pattern::kBroadcast && transfer.rank != transfer.root) return;
  for (size_t part = 0; part < transfer.parts; ++part)
    copy(stage + transfer.bytes_of(part * stride), transfer.send_at(part * transfer.count + first),
         transfer.bytes_of(elements), false);
}

void Staged::fill_first(const Transfer& transfer, const Geometry& geometry, std::byte* stage) {
  if (transfer.pattern == Pattern::kNothing) return;
  const size_t part = part_elements(transfer, geometry);
  fill(transfer, stage, 0, part, part);
}

size_t Staged::elements() const noexcept { return std::min(part_, transfer_.count - first_); }

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
      if (first_ + elements() < transfer_.count) show(first_ + elements());
      phase_ = Phase::kAwaitChunks;
    } else {
      move_directly();
      phase_ = Phase::kShow;
    }
  }
  if (phase_ == Phase::kAwaitChunks) {
    if (!chunks_complete(group_.record(tick_).done, tick_, chunks_)) return Progress::kPending;
    copy(transfer_.recv_at(first_), group_.result_stage(tick_), transfer_.bytes_of(elements()), false);
    phase_ = Phase::kMeet;
  }
  first_ += elements();
  return first_ < transfer_.count ? Progress::kMoved : Progress::kDone;
}

void Staged::show(size_t first) {
  fill(transfer_, group_.next_stage(), first, std::min(part_, transfer_.count - first), part_);
  group_.arrive();
}

void Staged::reduce_stages(size_t stage_offset, size_t elements, void* target, const void* own) const {
  constexpr int kInline = 16;
  std::array<const void*, kInline> few;
  std::vector<const void*> many;
  if (transfer_.size > kInline) many.resize(static_cast<size_t>(transfer_.size));
  const void** sources = transfer_.size > kInline ? many.data() : few.data();
  for (int member = 0; member < transfer_.size; ++member)
    sources[member] = group_.stage(member, tick_) + transfer_.bytes_of(stage_offset);
  // This rank's own part is read where it came from: it is as near, and its stage stays the others'.
  if (own) sources[transfer_.rank] = own;
  reduce(transfer_.reduce, sources, transfer_.size, &target, 1, elements);
}

void Staged::move_directly() {
  const size_t length = elements();
  switch (transfer_.pattern) {
    case Pattern::kNothing:
      return;
    case Pattern::kAllReduce:
      reduce_stages(0, length, transfer_.recv_at(first_), transfer_.send_at(first_));
      return;
    case Pattern::kReduceScatter:
      reduce_stages(static_cast<size_t>(transfer_.rank) * part_, length, transfer_.recv_at(first_),
                    transfer_.send_at(static_cast<size_t>(transfer_.rank) * transfer_.count + first_));
      return;
    case Pattern::kBroadcast:
      if (transfer_.rank != transfer_.root)
        copy(transfer_.recv_at(first_), group_.stage(transfer_.root, tick_), transfer_.bytes_of(length),
             false);
      else if (transfer_.recv != transfer_.send)
        copy(transfer_.recv_at(first_), transfer_.send_at(first_), transfer_.bytes_of(length), false);
      return;
    case Pattern::kAllGather:
      for (int member = 0; member < transfer_.size; ++member) {
        std::byte* target = transfer_.recv_at(static_cast<size_t>(member) * transfer_.count + first_);
        if (member == transfer_.rank && target == transfer_.send_at(first_)) continue;
        copy(target, group_.stage(member, tick_), transfer_.bytes_of(length), false);
      }
      return;
  }
}

void Staged::work_on_chunks() {
  const size_t bytes = transfer_.bytes_of(elements());
  const size_t fair = bytes / (2 * static_cast<size_t>(transfer_.size));
  chunk_ = std::clamp(fair, kMinChunkBytes, kMaxChunkBytes) / transfer_.element_bytes;
  chunks_ = (elements() + chunk_ - 1) / chunk_;
  TickRecord& record = group_.record(tick_);
  uint64_t finished = 0;
  for (;;) {
    const uint64_t chunk = claim_chunk(record.claim, tick_, chunks_);
    if (chunk == kNoChunk) break;
    const size_t start = chunk * chunk_;
    reduce_stages(start, std::min(chunk_, elements() - start),
                  group_.result_stage(tick_) + transfer_.bytes_of(start), transfer_.send_at(first_ + start));
    ++finished;
  }
  if (finished > 0 && complete_chunks(record.done, tick_, finished, chunks_)) group_.ring_all();
}

}  // namespace dsc
