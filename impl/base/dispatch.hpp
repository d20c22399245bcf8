// A background thread for work that no caller may wait for: it delivers log records and writes trace files.
#pragma once

#include <cstddef>

namespace dsc {

enum class Duty : size_t { kLog, kTrace };

// Sets the function for one kind of work, and starts the thread if necessary. Any thread may call this.
// Throws if memory or threads run out.
void start_dispatch(Duty duty, void (*run)());

// Requests that the thread soon runs the function for this kind of work. Async-signal-safe. Has no effect
// before start_dispatch().
void dispatch(Duty duty) noexcept;

}  // namespace dsc
