#include "bootstrap/pmix.hpp"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/mutex.hpp"
#include "base/thread.hpp"
#include "bootstrap/pmix_library.hpp"

namespace dsc {
namespace {

// A connection to the server, given back when the process ends: a launcher takes one that connected and
// ends without a word for one that failed. A child made by fork() must leave it alone.
class Session {
 public:
  explicit Session(const PmixLibrary& library) : library_(library) {
    const pmix_status_t status = library_.init(&self_, nullptr, 0);
    if (status != PMIX_SUCCESS)
      fail(DSC_ERR_SYSTEM, "the PMIx server cannot be reached: %s", library_.error_string(status));
  }
  ~Session() {
    if (getpid() == process_) library_.finalize(nullptr, 0);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  PmixJob job() const {
    pmix_proc_t everybody = self_;
    everybody.rank = PMIX_RANK_WILDCARD;
    PmixJob job;
    job.rank = static_cast<int32_t>(self_.rank);
    job.size = number(everybody, PMIX_JOB_SIZE).value_or(-1);
    if (job.size < 1) fail(DSC_ERR_SYSTEM, "the PMIx server does not say how many ranks the job has");
    job.local_rank = number(self_, PMIX_LOCAL_RANK).value_or(-1);
    job.local_size = number(everybody, PMIX_LOCAL_SIZE).value_or(-1);
    job.hosts = number(everybody, PMIX_NUM_NODES).value_or(-1);
    job.version = library_.version();
    return job;
  }

 private:
  // Facts of the job, which the server gives to every process at the start: asking does not wait.
  std::optional<int32_t> number(const pmix_proc_t& whose, const char* key) const {
    pmix_value_t* value = nullptr;
    if (library_.get(&whose, key, nullptr, 0, &value) != PMIX_SUCCESS || !value) return std::nullopt;
    const std::unique_ptr<pmix_value_t, decltype(&std::free)> owner(value, std::free);
    switch (value->type) {
      case PMIX_UINT16:
        return value->data.uint16;
      case PMIX_UINT32:
        return static_cast<int32_t>(value->data.uint32);
      case PMIX_INT:
        return value->data.integer;
      default:
        return std::nullopt;
    }
  }

  const PmixLibrary library_;
  pmix_proc_t self_{};
  const pid_t process_ = getpid();
};

// What a thread of its own finds out, since connecting has no time limit of the caller's.
struct Inquiry {
  Mutex mutex;
  Condition changed;
  bool over DSC_GUARDED_BY(mutex) = false;
  PmixJob job DSC_GUARDED_BY(mutex);
  dsc_result_t code DSC_GUARDED_BY(mutex) = DSC_OK;
  std::string text DSC_GUARDED_BY(mutex);
};

Mutex session_mutex;

PmixJob inquire(const PmixLibrary& library) {
  MutexLock lock(session_mutex);
  static const Session session(library);  // a failed try is made again
  return session.job();
}

void run_inquiry(Inquiry& inquiry, const PmixLibrary& library) {
  PmixJob job;
  dsc_result_t code = DSC_OK;
  std::string text;
  capture([&] { job = inquire(library); },
          [&](dsc_result_t failed, const char* why) {
            code = failed;
            text = why;
          });
  MutexLock lock(inquiry.mutex);
  inquiry.job = std::move(job);
  inquiry.code = code;
  inquiry.text = std::move(text);
  inquiry.over = true;
  inquiry.changed.notify_all();
}

}  // namespace

bool has_pmix() noexcept { return true; }

PmixPlace find_pmix(const Environment& environment) {
  const PmixLibrary library = load_pmix(environment);
  return {library.path, library.version()};
}

PmixJob ask_pmix(const Environment& environment, Deadline deadline) {
  const PmixLibrary library = load_pmix(environment);
  const auto inquiry = std::make_shared<Inquiry>();
  start_thread("dsc-pmix", [inquiry, library] { run_inquiry(*inquiry, library); }).detach();
  MutexLock lock(inquiry->mutex);
  while (!inquiry->over) {
    const int64_t left_ns = deadline.remaining_ns();
    if (left_ns == 0) fail(DSC_ERR_TIMEOUT, "the PMIx server did not answer in time");
    inquiry->changed.wait_for(inquiry->mutex, std::chrono::nanoseconds(left_ns));
  }
  if (inquiry->code != DSC_OK) throw Error(inquiry->code, inquiry->text.c_str());
  return inquiry->job;
}

}  // namespace dsc
