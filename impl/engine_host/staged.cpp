#include "engine_host/staged.hpp"

#include <algorithm>

#include "engine_host/chunk_counter.hpp"
#include "engine_host/per_member.hpp"

namespace dsc {
namespace {

constexpr size_t kMinChunkBytes = size_t{8} << 10;
constexpr size_t kLineElements = 64;

// Returns how many elements of a block, starting at `first`, fit into one part.
size_t in_part(size_t count, size_t first, size_t part) noexcept {
  return first < count ? std::min(part, count - first) : 0;
}

size_t part_elements(const Group& group, const Transfer& transfer) noexcept {
  const size_t fit = group.geometry().stage_bytes / (transfer.element_bytes * transfer.parts);
  const size_t whole = fit >= kLineElements ? fit / kLineElements * kLineElements : fit;
  // If the ranks do not know the longest block before all have arrived, the size of a part must not depend on
  // it.
  if (transfer.send_blocks && transfer.recv_blocks) return whole;
  return std::min(transfer.longest, whole);
}

Algorithm choose(const Group& group, const Transfer& transfer) noexcept {
  const size_t bytes = transfer.bytes_of(transfer.count) * static_cast<size_t>(transfer.size);
  if (!Staged::may_divide(transfer.pattern, transfer.size) || bytes <= group.tuning().direct_bytes)
    return Algorithm::kDirect;
  return bytes <= group.tuning().divided_bytes ? Algorithm::kDivided : Algorithm::kClaimed;
}

bool reads_alone(const Transfer& transfer) noexcept {
  return transfer.size == 2 || transfer.is_divided() || transfer.pattern == Pattern::kReduce ||
         transfer.pattern == Pattern::kGather;
}

}  // namespace

Staged::Plan::Plan(const Group& group, const Transfer& transfer_in) noexcept
    : transfer(transfer_in),
      algorithm(choose(group, transfer_in)),
      part(part_elements(group, transfer_in)),
      stage_bytes(transfer_in.bytes_of(part) * transfer_in.parts) {}

// Returns the range of a part that a member reduces. Ranges consist of whole cache lines.
Staged::Range Staged::Plan::share_of(int member, size_t elements) const noexcept {
  const auto members = static_cast<size_t>(transfer.size);
  const size_t lines = (elements + kLineElements - 1) / kLineElements;
  const size_t each = (lines + members - 1) / members * kLineElements;
  const size_t first = std::min(elements, static_cast<size_t>(member) * each);
  return {first, std::min(each, elements - first)};
}

void Staged::Plan::fill(std::byte* stage, size_t first) const {
  if (!transfer.sends(transfer.rank)) return;
  const auto put = [&](size_t offset, const Block& block, size_t start, size_t count) {
    std::byte* at = stage + transfer.bytes_of(offset);
    for_each_run(block, start, count, [&](size_t from, size_t, size_t run) {
      copy_bytes(at, transfer.send_at(from), transfer.bytes_of(run));
      at += transfer.bytes_of(run);
    });
  };
  if (transfer.is_divided()) {
    for (int receiver = 0; receiver < transfer.size; ++receiver) {
      if (receiver == transfer.rank) continue;  // this rank reads its own block from the send buffer
      const Block block = transfer.outgoing(receiver);
      put(static_cast<size_t>(receiver) * part, block, first, in_part(block.count, first, part));
    }
    return;
  }
  const Block block = transfer.outgoing(0);
  const size_t elements = in_part(block.count, first, part);
  if (algorithm != Algorithm::kDivided) return put(0, block, first, elements);
  const Range own = share_of(transfer.rank, elements);  // this rank reads its share from the send buffer
  const size_t behind = own.first + own.elements;
  put(0, block, first, own.first);
  put(behind, block, first + behind, elements - behind);
}

Staged::Staged(Group& group, const Transfer& transfer, NonFinite* found)
    : group_(group),
      transfer_(transfer),
      plan_(group, transfer),
      alone_(reads_alone(transfer) && plan_.stage_bytes > kSlotDataBytes),
      // If every rank reduces everything, only rank 0 counts non-finite elements, so that none is counted
      // twice.
      found_(plan_.algorithm != Algorithm::kDirect || transfer.pattern != Pattern::kAllReduce ||
                     transfer.rank == 0
                 ? found
                 : nullptr) {}

void Staged::fill_first() { plan_.fill(next_stage(), 0); }

size_t Staged::elements() const noexcept { return in_part(transfer_.longest, first_, plan_.part); }

// True if results should be stored without caching: they are large, and the memory that they are written to
// is not also an input, which would be in the caches.
bool Staged::bypasses_caches() const noexcept {
  const bool overwrites_input = (transfer_.reduces() || transfer_.pattern == Pattern::kAllToAll) &&
                                transfer_.recv < transfer_.send + transfer_.send_bytes &&
                                transfer_.send < transfer_.recv + transfer_.recv_bytes;
  return transfer_.bytes_of_all() >= group_.tuning().streaming_bytes && !overwrites_input;
}

Progress Staged::step() {
  if (phase_ == Phase::kShow) {
    publish(first_);
    phase_ = Phase::kMeet;
  }
  if (phase_ == Phase::kMeet) {
    if (!group_.all_arrived()) return Progress::kPending;
    work();
    phase_ = plan_.algorithm == Algorithm::kDirect ? Phase::kShow : Phase::kAwaitResults;
  }
  if (phase_ == Phase::kAwaitResults) {
    if (!results_complete()) return Progress::kPending;
    read_back();
    phase_ = Phase::kMeet;
  }
  first_ += elements();
  return first_ < transfer_.longest ? Progress::kMoved : Progress::kDone;
}

void Staged::publish(size_t first) {
  plan_.fill(next_stage(), first);
  group_.arrive();
}

void Staged::work() {
  epoch_ = group_.epoch();
  const Busy busy(group_);
  if (plan_.algorithm == Algorithm::kDirect) return move_directly();
  if (plan_.algorithm == Algorithm::kDivided)
    work_on_share();
  else
    work_on_chunks();
  // Publishes the next part before this rank waits for the others' results, so that it waits only once for
  // both. In a divided reduction, the arrival also means that this rank's share is done.
  const size_t next = first_ + elements();
  if (next < transfer_.longest || plan_.algorithm == Algorithm::kDivided) publish(next);
}

// Reduces a range. `offset` is its position in the stages. `own` is this rank's input if the input is not in
// its stage, otherwise null. With `into_stages`, the result is also written to the stages.
void Staged::reduce(size_t offset, Range range, const void* own, void* target, bool into_stages) {
  const auto members = static_cast<size_t>(transfer_.size);
  PerMember<const void*> sources(members);
  PerMember<void*> targets(members + 1);
  int target_count = 0;
  if (target) targets.data()[target_count++] = target;
  for (int member = 0; member < transfer_.size; ++member) {
    std::byte* const staged = stage(member) + transfer_.bytes_of(offset);
    const bool elsewhere = own && member == transfer_.rank;
    sources[static_cast<size_t>(member)] = elsewhere ? own : staged;
    if (into_stages && !elsewhere) targets.data()[target_count++] = staged;
  }
  ReduceSpec spec = transfer_.reduce;
  if (target && bypasses_caches()) spec.streamed = 1;
  NonFinite found;
  dsc::reduce(spec, sources.data(), transfer_.size, targets.data(), target_count, range.elements,
              found_ ? &found : nullptr);
  if (found_) found_->add(found, range.first);
}

void Staged::move_directly() {
  if (!transfer_.receives(transfer_.rank)) return;
  if (transfer_.reduces()) return reduce_directly();
  for (int sender = 0; sender < transfer_.size; ++sender)
    if (transfer_.sends(sender)) copy_block(sender);
}

void Staged::reduce_directly() {
  const Block own = transfer_.incoming(transfer_.rank);
  const size_t length = in_part(own.count, first_, plan_.part);
  if (length == 0) return;
  const size_t start = transfer_.is_divided() ? static_cast<size_t>(transfer_.rank) * plan_.part : 0;
  size_t done = 0;
  for_each_run(own, first_, length, [&](size_t index, size_t to, size_t run) {
    reduce(start + done, {index, run}, transfer_.send_at(index), transfer_.recv_at(to), alone_);
    done += run;
  });
}

void Staged::copy_block(int sender) {
  const bool non_temporal = bypasses_caches();
  Block block = transfer_.incoming(sender);
  const size_t count = in_part(block.count, first_, plan_.part);
  if (sender == transfer_.rank)
    return for_each_run(block, first_, count, [&](size_t from, size_t to, size_t run) {
      copy_bytes(transfer_.recv_at(to), transfer_.send_at(from), transfer_.bytes_of(run), non_temporal);
    });
  const size_t offset = transfer_.is_divided() ? static_cast<size_t>(transfer_.rank) * plan_.part : 0;
  std::byte* source = stage(sender) + transfer_.bytes_of(offset);
  block.from_rows = {};  // the block is contiguous in the stage
  for_each_run(block, first_, count, [&](size_t, size_t to, size_t run) {
    if (alone_)
      take(transfer_.recv_at(to), source, transfer_.bytes_of(run), non_temporal);
    else
      copy_bytes(transfer_.recv_at(to), source, transfer_.bytes_of(run), non_temporal);
    source += transfer_.bytes_of(run);
  });
}

void Staged::work_on_share() {
  const Range share = plan_.share_of(transfer_.rank, elements());
  if (share.elements == 0) return;
  const size_t at = first_ + share.first;
  void* const target = transfer_.receives(transfer_.rank) ? transfer_.recv_at(at) : nullptr;
  reduce(share.first, {at, share.elements}, transfer_.send_at(at), target, true);
}

void Staged::work_on_chunks() {
  const size_t fair = transfer_.bytes_of(elements()) / (2 * static_cast<size_t>(transfer_.size));
  const size_t most = group_.tuning().stage_chunk_bytes;
  const size_t chunk = std::clamp(fair, std::min(kMinChunkBytes, most), most) / transfer_.element_bytes;
  chunks_ = (elements() + chunk - 1) / chunk;
  EpochRecord& record = group_.record(epoch_);
  uint64_t finished = 0;
  for (;;) {
    const uint64_t claimed = claim_chunk(record.claim, epoch_, chunks_);
    if (claimed == kNoChunk) break;
    const size_t start = claimed * chunk;
    reduce(start, {first_ + start, std::min(chunk, elements() - start)}, nullptr, nullptr, true);
    ++finished;
  }
  if (finished > 0 && complete_chunks(record.done, epoch_, finished, chunks_)) group_.notify_all_members();
}

bool Staged::results_complete() noexcept {
  if (plan_.algorithm == Algorithm::kDivided) return group_.all_arrived();
  return !transfer_.receives(transfer_.rank) || chunks_complete(group_.record(epoch_).done, epoch_, chunks_);
}

void Staged::read_back() {
  if (!transfer_.receives(transfer_.rank)) return;
  if (plan_.algorithm == Algorithm::kClaimed) return read_back({0, elements()});
  const Range own = plan_.share_of(transfer_.rank, elements());
  const size_t behind = own.first + own.elements;
  read_back({0, own.first});
  read_back({behind, elements() - behind});
}

void Staged::read_back(Range range) {
  take(transfer_.recv_at(first_ + range.first), stage(transfer_.rank) + transfer_.bytes_of(range.first),
       transfer_.bytes_of(range.elements), bypasses_caches());
}

}  // namespace dsc
