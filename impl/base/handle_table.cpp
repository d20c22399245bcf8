#include "base/handle_table.hpp"

#include <array>
#include <iterator>
#include <utility>

#include "base/mutex.hpp"

namespace dsc::handles {

// One entry of the table. The word holds the generation (36 bits), a vacant bit, a closing bit and the number
// of pins (26 bits). A closing slot without pins becomes vacant in its next generation, and the thread that
// makes this change releases the object. A stale handle may add a pin and remove it again at any time without
// effect.
struct Slot {
  std::atomic<uint64_t> word{0};
  uint32_t index = 0;
  HandleKind kind{};
  std::shared_ptr<void> object;
  Slot* next_free = nullptr;
};

namespace {

constexpr int kIndexBits = 24;
constexpr int kGenerationBits = 36;
constexpr int kPinBits = 26;
constexpr uint64_t kPinMask = (uint64_t{1} << kPinBits) - 1;
constexpr uint64_t kClosing = uint64_t{1} << kPinBits;
constexpr uint64_t kVacant = uint64_t{2} << kPinBits;
constexpr int kGenerationShift = kPinBits + 2;
constexpr uint64_t kGenerationMask = (uint64_t{1} << kGenerationBits) - 1;
constexpr size_t kChunkSlots = 1024;
constexpr size_t kChunks = (size_t{1} << kIndexBits) / kChunkSlots;

// The C types of the handles, in the order of HandleKind.
constexpr const char* kTypes[] = {"dsc_comm_t",          "dsc_work_t",        "dsc_bucket_reducer_t",
                                  "dsc_pipe_schedule_t", "dsc_store_t",       "dsc_mesh_t",
                                  "dsc_tied_layers_t",   "dsc_pipe_report_t", "dsc_sharded_t",
                                  "dsc_join_t",          "dsc_ring_t",        "dsc_moe_plan_t"};
static_assert(std::size(kTypes) == static_cast<size_t>(HandleKind::kMoePlan));

constexpr uint64_t generation(uint64_t word) { return word >> kGenerationShift; }
constexpr uint64_t vacant_word(uint64_t generation) {
  return (generation & kGenerationMask) << kGenerationShift | kVacant;
}

// The slots of all handles. They are allocated in chunks that never move, so a lookup needs no lock.
class Table {
 public:
  Slot& acquire() {
    MutexLock lock(mutex_);
    // Slots are reused in order of release, and only when many are free. An id that was just released is
    // therefore detected as stale for a long time.
    if (free_count_ >= kChunkSlots || size_ == kChunkSlots * kChunks) {
      if (free_count_ == 0) fail(DSC_ERR_NOMEM, "all %zu handles are in use", size_);
      Slot& slot = *std::exchange(first_free_, first_free_->next_free);
      --free_count_;
      return slot;
    }
    if (size_ % kChunkSlots == 0)
      chunks_[size_ / kChunkSlots].store(new Slot[kChunkSlots], std::memory_order_release);
    Slot& slot = chunks_[size_ / kChunkSlots].load(std::memory_order_relaxed)[size_ % kChunkSlots];
    slot.index = static_cast<uint32_t>(size_++);
    slot.word.store(vacant_word(1), std::memory_order_relaxed);
    return slot;
  }

  void release(Slot& slot) noexcept {
    MutexLock lock(mutex_);
    slot.next_free = nullptr;
    (free_count_ == 0 ? first_free_ : last_free_->next_free) = &slot;
    last_free_ = &slot;
    ++free_count_;
  }

  Slot* find(uint32_t index) const noexcept {
    Slot* chunk = chunks_[index / kChunkSlots].load(std::memory_order_acquire);
    return chunk ? &chunk[index % kChunkSlots] : nullptr;
  }

 private:
  Mutex mutex_;
  std::array<std::atomic<Slot*>, kChunks> chunks_{};
  Slot* first_free_ DSC_GUARDED_BY(mutex_) = nullptr;
  Slot* last_free_ DSC_GUARDED_BY(mutex_) = nullptr;
  size_t free_count_ DSC_GUARDED_BY(mutex_) = 0;
  size_t size_ DSC_GUARDED_BY(mutex_) = 0;
};

// The table is never destroyed, because handles may be used until the process ends.
Table& table() {
  static Table* const instance = new Table;
  return *instance;
}

void release_if_last(Slot* slot, uint64_t word) noexcept {
  if ((word & kPinMask) != 0 || (word & kClosing) == 0) return;
  uint64_t expected = word;
  if (!slot->word.compare_exchange_strong(expected, vacant_word(generation(word) + 1),
                                          std::memory_order_acq_rel))
    return;
  std::shared_ptr<void> object = std::move(slot->object);
  slot->object = nullptr;
  table().release(*slot);
}

}  // namespace

uint64_t open(HandleKind kind, std::shared_ptr<void> object) {
  Slot& slot = table().acquire();
  slot.object = std::move(object);
  slot.kind = kind;
  const uint64_t word = slot.word.fetch_and(~kVacant, std::memory_order_release);
  return static_cast<uint64_t>(kind) << (kIndexBits + kGenerationBits) | generation(word) << kIndexBits |
         slot.index;
}

// Counts the pin first and then checks the id, so that the object cannot be released in between. If the id is
// stale, removes the pin again.
Slot* pin(HandleKind kind, uint64_t id) {
  if (id == 0) fail(DSC_ERR_BAD_HANDLE, "the handle is NULL");
  const auto id_kind = id >> (kIndexBits + kGenerationBits);
  if (id_kind < static_cast<uint64_t>(HandleKind::kComm) ||
      id_kind > static_cast<uint64_t>(HandleKind::kMoePlan))
    fail(DSC_ERR_BAD_HANDLE, "0x%llx is not a handle of this library", static_cast<unsigned long long>(id));
  if (id_kind != static_cast<uint64_t>(kind))
    fail(DSC_ERR_BAD_HANDLE, "the handle is a %s, expected a %s", kTypes[id_kind - 1],
         kTypes[static_cast<size_t>(kind) - 1]);
  Slot* slot = table().find(static_cast<uint32_t>(id & ((uint64_t{1} << kIndexBits) - 1)));
  if (!slot)
    fail(DSC_ERR_BAD_HANDLE, "0x%llx is not a handle: no call has returned it",
         static_cast<unsigned long long>(id));
  const uint64_t word = slot->word.fetch_add(1, std::memory_order_acquire);
  if (generation(word) == ((id >> kIndexBits) & kGenerationMask) && (word & (kClosing | kVacant)) == 0 &&
      slot->kind == kind)
    return slot;
  unpin(slot);
  fail(DSC_ERR_BAD_HANDLE, "the handle is stale: its object was destroyed");
}

void unpin(Slot* slot) noexcept {
  release_if_last(slot, slot->word.fetch_sub(1, std::memory_order_acq_rel) - 1);
}

const std::shared_ptr<void>& object(const Slot* slot) noexcept { return slot->object; }

bool close(Slot* slot) noexcept {
  return (slot->word.fetch_or(kClosing, std::memory_order_acq_rel) & kClosing) == 0;
}

}  // namespace dsc::handles
