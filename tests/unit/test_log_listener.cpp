// Replacing the log listener while other threads log without a pause.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/log.hpp"
#include "base/log_listeners.hpp"
#include "dsc/types.h"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr int64_t kQueued = 4;
constexpr int kReplacements = 40;
constexpr int64_t kMostCalls = 64;  // 2 ms per call; a busy machine may need 100 ms to schedule a thread
constexpr auto kLimit = 20s;

std::atomic<int64_t> made{0}, received{0};

// The context of a listener.
struct Program {
  std::atomic<int64_t> calls{0};
  std::atomic<bool> replaced{false};
  std::atomic<bool> called_late{false};
};

void receive(const dsc::LogListener& listener, const dsc::LogRecord&) {
  auto& program = *static_cast<Program*>(listener.context);
  std::this_thread::sleep_for(2ms);
  if (program.replaced) program.called_late = true;
  ++program.calls;
  ++received;
}

void listen(Program& program) { dsc::set_log_listener({receive, nullptr, &program, DSC_LOG_LEVEL_WARN}); }

// Keeps some records queued, so that deliveries follow each other without a gap.
void log_steadily(const std::atomic<bool>& stop) {
  for (const auto end = Clock::now() + kLimit; !stop && Clock::now() < end;)
    if (made - received < kQueued) {
      ++made;
      dsc::log(DSC_LOG_LEVEL_WARN, "steady");
    } else {
      std::this_thread::sleep_for(50us);
    }
}

// The old listener gets the records that were logged before set_log_listener() was called, and those that are
// delivered until the thread in that call is scheduled again. It gets none after the call has returned.
void a_listener_is_replaced_under_steady_logging(void**) {
  std::array<Program, kReplacements + 1> programs;
  std::atomic<bool> stop{false};
  int64_t most_calls = 0;
  listen(programs[0]);
  std::thread logger([&] { log_steadily(stop); });
  while (received < kQueued) std::this_thread::sleep_for(1ms);
  for (size_t i = 0; i < kReplacements; ++i) {
    const int64_t before = programs[i].calls;
    listen(programs[i + 1]);
    programs[i].replaced = true;
    most_calls = std::max(most_calls, programs[i].calls - before);
  }
  stop = true;
  logger.join();
  dsc::set_log_listener({});
  print_message("at most %lld calls while a listener was replaced\n", static_cast<long long>(most_calls));
  for (const Program& program : programs) assert_false(program.called_late);
  assert_true(most_calls <= kMostCalls);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(a_listener_is_replaced_under_steady_logging)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
