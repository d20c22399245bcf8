// The start of a call on an object that takes one call at a time: finds the object of the handle, and fails
// if another thread is in a call on it.
#pragma once

#include "base/exclusive_use.hpp"
#include "base/handle_table.hpp"

namespace dsc {

template <typename Object, HandleKind kKind>
class ExclusiveCall {
 public:
  explicit ExclusiveCall(const void* handle) : object_(kKind, handle), use_(object_->in_call) {}

  Object* operator->() const noexcept { return object_.get(); }
  Object& operator*() const noexcept { return *object_; }

 private:
  Pinned<Object> object_;
  ExclusiveUse use_;
};

}  // namespace dsc
