// The thread for what must keep nobody else waiting: log records are delivered and trace files written there.
#pragma once

#include <cstddef>

namespace dsc {

enum class Duty : size_t { kLog, kTrace };

// Makes the thread, if it is not there yet, and gives it a duty. Any thread. Throws without memory or
// threads.
void start_dispatch(Duty duty, void (*run)());

// Asks the thread to run the duty once more, soon. Async-signal-safe; nothing happens before
// start_dispatch().
void dispatch(Duty duty) noexcept;

}  // namespace dsc
