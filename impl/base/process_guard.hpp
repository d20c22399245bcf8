// Checks at every entry to the library: whether this process is a forked child, and whether the call comes
// from inside a callback.
#pragma once

#include <type_traits>

namespace dsc {

// Marks this process as a user of the library; idempotent. In a child forked afterwards is_forked_child()
// returns true.
void mark_process();
bool is_forked_child() noexcept;

// Registers a function that runs in the child right after fork(), to close descriptors that must not outlive
// the parent.
void at_fork_child(void (*action)());

bool in_callback() noexcept;

// While it exists, the calling thread counts as running a user-defined callback.
class CallbackScope {
 public:
  CallbackScope() noexcept;
  ~CallbackScope();
  CallbackScope(const CallbackScope&) = delete;
  CallbackScope& operator=(const CallbackScope&) = delete;
};

// Runs user-defined code; false if it threw.
bool call_out_impl(void (*invoke)(void*), void* body);

template <typename Body>
bool call_out(Body&& body) {
  using Plain = std::remove_reference_t<Body>;
  return call_out_impl([](void* opaque) { (*static_cast<Plain*>(opaque))(); }, &body);
}

}  // namespace dsc
