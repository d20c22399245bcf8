// Handles are ids, not addresses: kind (4 bits), generation (36 bits), index (24 bits). A handle that is
// stale, not from this library or of the wrong kind is detected in constant time. An object is not freed
// while a call uses it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/error.hpp"

namespace dsc {

// Kinds of objects with handles. Each value is part of the id, so a handle of the wrong kind is detected.
enum class HandleKind : uint8_t {
  kComm = 1,
  kWork = 2,
  kBucketReducer = 3,
  kPipeSchedule = 4,
  kStore = 5,
  kMesh = 6,
  kTiedLayers = 7,
  kPipeReport = 8,
  kSharded = 9,
  kJoin = 10,
  kRing = 11,
  kMoePlan = 12
};

namespace handles {

struct Slot;

// Registers an object and returns its id, which is never 0.
uint64_t open(HandleKind kind, std::shared_ptr<void> object);

// Pins the slot of the id, so that its object is not freed before unpin(). Throws BAD_HANDLE if the id is
// stale or of another kind.
Slot* pin(HandleKind kind, uint64_t id);
void unpin(Slot* slot) noexcept;
const std::shared_ptr<void>& object(const Slot* slot) noexcept;

// Makes the id stale. Returns false if another thread has already done so. The pin of the caller remains.
bool close(Slot* slot) noexcept;

}  // namespace handles

// Keeps the object of a handle alive for the duration of a call.
template <typename T>
class Pinned {
 public:
  Pinned(HandleKind kind, uint64_t id) : slot_(handles::pin(kind, id)) {}
  Pinned(HandleKind kind, const void* handle) : Pinned(kind, uint64_t{reinterpret_cast<uintptr_t>(handle)}) {}
  ~Pinned() { handles::unpin(slot_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

  T* operator->() const noexcept { return get(); }
  T& operator*() const noexcept { return *get(); }
  T* get() const noexcept { return static_cast<T*>(handles::object(slot_).get()); }
  std::shared_ptr<T> share() const { return std::static_pointer_cast<T>(handles::object(slot_)); }

  // Makes the handle stale. Throws BAD_HANDLE if another thread has already done so.
  void close() {
    if (!handles::close(slot_)) fail(DSC_ERR_BAD_HANDLE, "the handle was destroyed by another thread");
  }

 private:
  handles::Slot* slot_;
};

template <typename Handle, typename T>
Handle* open_handle(HandleKind kind, std::shared_ptr<T> object) {
  return reinterpret_cast<Handle*>(static_cast<uintptr_t>(handles::open(kind, std::move(object))));
}

}  // namespace dsc
