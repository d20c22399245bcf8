// Helpers for calls on a communicator.
#pragma once

#include "comm/comm.hpp"
#include "exclusive_call.hpp"

namespace dsc {

inline Pinned<Comm> pin_comm(const void* handle) { return Pinned<Comm>(HandleKind::kComm, handle); }

// Returns a new handle of a communicator, or NULL for null.
inline dsc_comm_t* open_comm(std::shared_ptr<Comm> comm) {
  return comm ? open_handle<dsc_comm_t>(HandleKind::kComm, std::move(comm)) : nullptr;
}

inline void check_stream(const Comm& comm, const void* stream) {
  if (stream && comm.device() < 0)
    fail(DSC_ERR_UNSUPPORTED,
         "stream is not NULL, but this communicator is not bound to a device: set device in "
         "dsc_init_options_t");
}

// A call that is allowed between dsc_batch_begin() and dsc_batch_end().
using OperationCall = ExclusiveCall<Comm, HandleKind::kComm>;

class CommCall : public OperationCall {
 public:
  explicit CommCall(const void* handle) : OperationCall(handle) {
    if ((*this)->coalesced)
      fail(DSC_ERR_STATE,
           "a batch is open on this communicator: expected another operation, or dsc_batch_end()");
  }
};

}  // namespace dsc
