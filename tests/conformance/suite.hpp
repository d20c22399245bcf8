// What the cases of the suite share: worlds, and buffers in the memory that the engine uses.
#pragma once

#include <cstring>
#include <functional>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/comm.hpp"

extern "C" {
#include "gpu.h"
#include "ranks.h"
}

namespace suite {

// Returns 0, or what CHECK returns.
using Body = int (*)(rank_t* self, dsc::Comm& world);

// Runs a body on every rank of a new world, then ends the world. Returns the number of ranks that failed.
int run(int size, Body body);

// Returns the failure of a call. Its code is DSC_OK if the call succeeded.
template <typename Run>
dsc::Failure failure_of(Run&& run) {
  dsc::Failure failure;
  dsc::capture(run, [&](const dsc::Error& error) { failure = error.failure(); });
  return failure;
}

inline bool says(const dsc::Failure& failure, const char* words) {
  return std::strstr(failure.text.c_str(), words) != nullptr;
}

// Elements on the device of a world that is bound to one, otherwise in host memory.
template <typename T>
class Buffer {
 public:
  Buffer(const dsc::Comm& comm, std::vector<T> values) : values_(std::move(values)) {
    if (comm.device() < 0) return;
    device_ = gpu_alloc(bytes() + 1);
    gpu_upload(device_, values_.data(), bytes());
  }
  ~Buffer() {
    if (device_ && gpu_synchronize(nullptr)) gpu_free(device_);  // a stream may still use the memory
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  T* data() noexcept { return device_ ? static_cast<T*>(device_) : values_.data(); }
  // All operations on the buffer must have ended, or on a device must be on its default stream.
  std::vector<T> read() {
    if (device_ && !(gpu_synchronize(nullptr) && gpu_download(values_.data(), device_, bytes()))) return {};
    return values_;
  }

 private:
  size_t bytes() const noexcept { return values_.size() * sizeof(T); }

  std::vector<T> values_;
  void* device_ = nullptr;
};

// The cases. Each is a cmocka test.
void every_kind_moves_its_data(void** state);
void internal_kinds_gather(void** state);
void messages_keep_their_order(void** state);
void a_batch_is_one_operation(void** state);
void memory_is_zeroed(void** state);
void operations_are_counted(void** state);
void a_work_ends_once(void** state);
void progress_waits_for_all_worlds(void** state);
void a_deadline_fails_the_group(void** state);
void different_calls_are_a_mismatch(void** state);
void different_messages_are_a_mismatch(void** state);
void a_rank_that_leaves_is_named(void** state);
void a_revoked_group_keeps_its_first_cause(void** state);
void what_is_unsupported_touches_nobody(void** state);
void groups_are_made_alike(void** state);
void channels_share_the_end(void** state);
void the_living_agree_and_go_on(void** state);
void memory_computes(void** state);
void memory_packs_tensors(void** state);
void memory_has_norms(void** state);
void memory_keeps_the_order(void** state);

}  // namespace suite
