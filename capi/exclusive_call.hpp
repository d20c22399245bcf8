// What a call does first on an object that takes one call at a time: finds it, and keeps other threads out.
#pragma once

#include "base/handle_table.hpp"

namespace dsc {

template <typename Object, HandleKind kKind>
class ExclusiveCall {
 public:
  explicit ExclusiveCall(const void* handle) : object_(kKind, handle) {
    if (object_->in_call.exchange(true, std::memory_order_acquire))
      fail(DSC_ERR_BUSY, "another call is inside this handle, of another thread or around this callback");
  }
  ~ExclusiveCall() { object_->in_call.store(false, std::memory_order_release); }
  ExclusiveCall(const ExclusiveCall&) = delete;
  ExclusiveCall& operator=(const ExclusiveCall&) = delete;

  Object* operator->() const noexcept { return object_.get(); }
  Object& operator*() const noexcept { return *object_; }

 private:
  Pinned<Object> object_;
};

}  // namespace dsc
