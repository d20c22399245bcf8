#include "bootstrap/run_until.hpp"

#include <chrono>
#include <memory>
#include <optional>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/mutex.hpp"
#include "base/thread.hpp"

namespace dsc {
namespace {

struct Outcome {
  Mutex mutex;
  Condition changed;
  bool over DSC_GUARDED_BY(mutex) = false;
  std::optional<Error> error DSC_GUARDED_BY(mutex);
};

void run(Outcome& outcome, const std::function<void()>& body) {
  std::optional<Error> error;
  capture(body, [&](const Error& thrown) { error = thrown; });
  MutexLock lock(outcome.mutex);
  outcome.error = error;
  outcome.over = true;
  outcome.changed.notify_all();
}

}  // namespace

void run_until(Deadline deadline, const char* thread_name, const std::function<void()>& body,
               const char* late) {
  const auto outcome = std::make_shared<Outcome>();
  start_thread(thread_name, [outcome, body] { run(*outcome, body); }).detach();
  MutexLock lock(outcome->mutex);
  while (!outcome->over) {
    const int64_t left_ns = deadline.remaining_ns();
    if (left_ns == 0) fail(DSC_ERR_TIMEOUT, "%s", late);
    outcome->changed.wait_for(outcome->mutex, std::chrono::nanoseconds(left_ns));
  }
  if (outcome->error) throw Error(*outcome->error);
}

}  // namespace dsc
