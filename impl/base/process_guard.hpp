// Detects a forked child and a call from inside a callback. Every function of the API checks both.
#pragma once

#include <type_traits>

namespace dsc {

// Marks this process as a user of the library; further calls have no effect. is_forked_child() returns true
// in children that are forked afterwards.
void mark_process();
bool is_forked_child() noexcept;

// Registers a function that runs in a child right after fork(), to close descriptors that the child must not
// keep open.
void at_fork_child(void (*action)());

bool in_callback() noexcept;

// While this object exists, the calling thread counts as running a user-defined callback.
class CallbackScope {
 public:
  CallbackScope() noexcept;
  ~CallbackScope();
  CallbackScope(const CallbackScope&) = delete;
  CallbackScope& operator=(const CallbackScope&) = delete;
};

// Runs user-defined code. Returns false if that code threw an exception.
bool call_out_impl(void (*invoke)(void*), void* body);

template <typename Body>
bool call_out(Body&& body) {
  using Plain = std::remove_reference_t<Body>;
  return call_out_impl([](void* opaque) { (*static_cast<Plain*>(opaque))(); }, &body);
}

}  // namespace dsc
