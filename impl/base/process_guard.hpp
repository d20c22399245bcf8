// What every entry into the library checks first: a child made by fork(), and a call from inside a callback.
#pragma once

#include <type_traits>

namespace dsc {

// Marks this process as one that uses the library; idempotent. A child made by fork() after it
// is_forked_child().
void mark_process();
bool is_forked_child() noexcept;

// Runs in the child right after fork(): for closing descriptors that must not outlive the parent.
void at_fork_child(void (*action)());

bool in_callback() noexcept;

// While it lives, this thread runs a callback of the caller's.
class CallbackScope {
 public:
  CallbackScope() noexcept;
  ~CallbackScope();
  CallbackScope(const CallbackScope&) = delete;
  CallbackScope& operator=(const CallbackScope&) = delete;
};

// Runs caller's code; false if it threw.
bool call_out_impl(void (*invoke)(void*), void* body);

template <typename Body>
bool call_out(Body&& body) {
  using Plain = std::remove_reference_t<Body>;
  return call_out_impl([](void* opaque) { (*static_cast<Plain*>(opaque))(); }, &body);
}

}  // namespace dsc
