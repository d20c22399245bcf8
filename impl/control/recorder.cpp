#include "control/recorder.hpp"

#include <algorithm>

namespace dsc {
namespace {

// An operation gets no entry if it cannot take any of this many successive entries, for example because their
// operations are still running.
constexpr int kTries = 16;

// Special ids of entries that contain no operation.
constexpr uint64_t kUnused = 0;
constexpr uint64_t kChanging = ~uint64_t{0};

constexpr auto kRead = std::memory_order_acquire;
constexpr auto kWrite = std::memory_order_release;
constexpr auto kRelaxed = std::memory_order_relaxed;

}  // namespace

const char* algorithm_name(Algorithm algorithm) noexcept {
  switch (algorithm) {
    case Algorithm::kNone:
      return nullptr;
    case Algorithm::kLocal:
      return "local";
    case Algorithm::kDirect:
      return "direct";
    case Algorithm::kDivided:
      return "divided";
    case Algorithm::kClaimed:
      return "claimed";
    case Algorithm::kStaged:
      return "staged";
    case Algorithm::kSingleCopy:
      return "single_copy";
    case Algorithm::kZeroCopy:
      return "zero_copy";
  }
  return nullptr;
}

const char* algorithm_rule(Algorithm algorithm) noexcept {
  switch (algorithm) {
    case Algorithm::kNone:
      return nullptr;
    case Algorithm::kLocal:
      return "one rank alone: its input is its result";
    case Algorithm::kDirect:
      return "the operation does not reduce, or only one of two ranks gets the result, or all ranks together "
             "have at most direct_bytes: every rank reads the data that it needs from the stages, "
             "stage_bytes at a time";
    case Algorithm::kDivided:
      return "all ranks together have more than direct_bytes and at most divided_bytes: every rank reduces "
             "its share in all stages and reads the rest from its own stage, stage_bytes at a time";
    case Algorithm::kClaimed:
      return "all ranks together have more than direct_bytes and divided_bytes: any rank that runs takes the "
             "next chunk of at most stage_chunk_bytes and reduces it in all stages, and every rank reads the "
             "result from its own stage, stage_bytes at a time";
    case Algorithm::kStaged:
      return "a message that is neither zero_copy nor single_copy: it goes through a channel, "
             "message_chunk_bytes at a time";
    case Algorithm::kSingleCopy:
      return "ordinary buffers, no reduction, and one rank reads at least single_copy_min_bytes from "
             "another: the "
             "kernel copies the data directly between the buffers";
    case Algorithm::kZeroCopy:
      return "the buffers that other ranks use are in memory of dsc_mem_alloc() or dsc_mem_register(), and a "
             "rank has at least zero_copy_min_bytes: data goes directly between the buffers, at most "
             "zero_copy_chunk_bytes at a time";
  }
  return nullptr;
}

Recorder::Recorder(size_t capacity)
    : capacity_(capacity), entries_(capacity > 0 ? std::make_unique<RecordEntry[]>(capacity) : nullptr) {
  on_device_.in_order = false;  // operations of different streams may end in any order
}

Recorder::~Recorder() = default;

// A writer takes an entry by exchanging its id, if the entry is free and older than the writer's operation.
// `next_` is only a hint where to start; concurrent writers may decrease it a little.
RecordEntry* Recorder::claim(uint64_t& id) noexcept {
  uint64_t position = next_.load(kRelaxed);
  for (int tries = 0; tries < kTries; ++tries, ++position) {
    RecordEntry& entry = entries_[position % capacity_];
    uint64_t held = entry.id.load(kRead);
    const bool vacant = held <= position && (held == kUnused || entry.ended.load(kRead) != 0 ||
                                             entry.detach.load(kRead) != Detached::kNo);
    if (!vacant || !entry.id.compare_exchange_strong(held, kChanging, std::memory_order_acq_rel)) continue;
    id = position + 1;
    next_.store(id, kRelaxed);
    return &entry;
  }
  next_.store(position, kRelaxed);
  return nullptr;
}

// Stores the id last, so that readers ignore the entry until all its fields are valid.
Record Recorder::open(const RecordedCall& call, int64_t created) noexcept {
  if (capacity_ == 0) return {};
  const uint64_t collective = is_message(call.kind) ? 0 : call.sequence;
  LatestSequences& latest = call.on_device ? on_device_ : on_host_;
  if (collective != 0) latest.enqueued.store(collective, kWrite);
  uint64_t id = 0;
  RecordEntry* const entry = claim(id);
  if (!entry) {
    latest.omitted.fetch_add(1, kRelaxed);
    return Record(latest, nullptr, collective, created);
  }
  entry->created.store(created, kWrite);
  entry->sequence.store(call.sequence, kWrite);
  entry->send_bytes.store(call.send_bytes, kWrite);
  entry->recv_bytes.store(call.recv_bytes, kWrite);
  entry->dtype.store(call.dtype, kWrite);
  entry->op.store(call.op, kWrite);
  entry->root.store(call.root, kWrite);
  entry->timeout_ms.store(call.timeout_ms, kWrite);
  entry->kind.store(call.kind, kWrite);
  entry->on_device.store(call.on_device, kWrite);
  entry->started.store(0, kWrite);
  entry->met.store(0, kWrite);
  entry->algorithm.store(Algorithm::kNone, kWrite);
  entry->detach.store(Detached::kNo, kWrite);
  entry->result.store(DSC_OK, kWrite);
  entry->ended.store(0, kWrite);
  entry->id.store(id, kWrite);
  return Record(latest, entry, collective, created);
}

// Exchanges the id first, which reserves the entry, because a new operation may try to take it at the same
// moment.
uint64_t Recorder::fail_detached(uint64_t from, uint64_t struck_below, int64_t ticks,
                                 dsc_result_t result) noexcept {
  const auto is_meant = [from](const RecordEntry& entry, uint64_t id) {
    return id != kUnused && id != kChanging && entry.detach.load(kRead) == Detached::kLaunched &&
           entry.ended.load(kRead) == 0 && entry.sequence.load(kRead) >= from &&
           !is_message(entry.kind.load(kRead));
  };
  uint64_t first = 0;
  for (size_t i = 0; i < capacity_; ++i) {
    const uint64_t sequence = entries_[i].sequence.load(kRead);
    if (is_meant(entries_[i], entries_[i].id.load(kRead)) && (first == 0 || sequence < first))
      first = sequence;
  }
  for (size_t i = 0; i < capacity_ && first != 0; ++i) {
    RecordEntry& entry = entries_[i];
    uint64_t id = entry.id.load(kRead);
    if (!is_meant(entry, id) || !entry.id.compare_exchange_strong(id, kChanging, std::memory_order_acq_rel))
      continue;
    const bool is_struck = entry.sequence.load(kRead) == first && first < struck_below;
    entry.result.store(is_struck ? result : DSC_ERR_REVOKED, kWrite);
    entry.ended.store(std::max(ticks, entry.started.load(kRead)), kWrite);
    entry.id.store(id, kWrite);
  }
  return first;
}

// Reads the fields in the reverse order of writing, so that an operation that has ended has all its times.
bool Recorder::read_entry(const RecordEntry& entry, RecordedOperation& operation) noexcept {
  operation.id = entry.id.load(kRead);
  if (operation.id == kUnused || operation.id == kChanging) return false;
  operation.ended = entry.ended.load(kRead);
  operation.result = entry.result.load(kRead);
  operation.detach = entry.detach.load(kRead);
  operation.algorithm = entry.algorithm.load(kRead);
  operation.met = entry.met.load(kRead);
  operation.started = entry.started.load(kRead);
  RecordedCall& call = operation.call;
  call.on_device = entry.on_device.load(kRead);
  call.kind = entry.kind.load(kRead);
  call.timeout_ms = entry.timeout_ms.load(kRead);
  call.root = entry.root.load(kRead);
  call.op = entry.op.load(kRead);
  call.dtype = entry.dtype.load(kRead);
  call.recv_bytes = entry.recv_bytes.load(kRead);
  call.send_bytes = entry.send_bytes.load(kRead);
  call.sequence = entry.sequence.load(kRead);
  operation.created = entry.created.load(kRead);
  return entry.id.load(kRelaxed) == operation.id;
}

std::vector<RecordedOperation> Recorder::read() const {
  std::vector<RecordedOperation> operations;
  operations.reserve(capacity_);
  for (size_t i = 0; i < capacity_; ++i)
    if (RecordedOperation operation; read_entry(entries_[i], operation)) operations.push_back(operation);
  std::sort(operations.begin(), operations.end(),
            [](const RecordedOperation& a, const RecordedOperation& b) { return a.id < b.id; });
  return operations;
}

RecordedProgress Recorder::progress(bool on_device) const noexcept {
  const LatestSequences& latest = on_device ? on_device_ : on_host_;
  RecordedProgress progress;
  progress.completed = latest.completed.load(kRead);
  progress.started = latest.started.load(kRead);
  progress.enqueued = latest.enqueued.load(kRead);
  return progress;
}

}  // namespace dsc
