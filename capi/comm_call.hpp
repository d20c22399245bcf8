// What every call on a communicator does first: finds it, and keeps other threads out where only one may be
// inside.
#pragma once

#include "base/handle_table.hpp"
#include "comm/comm.hpp"

namespace dsc {

inline Pinned<Comm> pin_comm(const void* handle) { return Pinned<Comm>(HandleKind::kComm, handle); }

class CommCall {
 public:
  explicit CommCall(const void* handle) : comm_(HandleKind::kComm, handle) {
    if (comm_->in_call.exchange(true, std::memory_order_acquire))
      fail(DSC_ERR_BUSY, "another thread is inside a call on this communicator");
  }
  ~CommCall() { comm_->in_call.store(false, std::memory_order_release); }
  CommCall(const CommCall&) = delete;
  CommCall& operator=(const CommCall&) = delete;

  Comm* operator->() const noexcept { return comm_.get(); }
  Comm& operator*() const noexcept { return *comm_; }

 private:
  Pinned<Comm> comm_;
};

}  // namespace dsc
