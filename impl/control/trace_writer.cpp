#include "control/trace_writer.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/dispatch.hpp"
#include "base/file.hpp"
#include "base/guard.hpp"
#include "base/log.hpp"
#include "base/process_guard.hpp"
#include "control/host_group.hpp"
#include "control/trace.hpp"

namespace dsc {

std::atomic<int> TraceWriter::enrolled_{0};
std::atomic<bool> TraceWriter::requested_{false};

TraceWriter& TraceWriter::get() {
  static TraceWriter* const instance = new TraceWriter;
  return *instance;
}

void TraceWriter::enroll(const std::shared_ptr<HostGroup>& host) {
  start_dispatch(Duty::kTrace, [] { get().write_all(); });
  MutexLock lock(mutex_);
  std::erase_if(hosts_, [](const auto& known) { return known.expired(); });
  hosts_.push_back(host);
  enrolled_.fetch_add(1);
}

void TraceWriter::post(std::shared_ptr<HostGroup> host, std::string reason) {
  std::vector<GroupRecord> groups = host->records();
  {
    MutexLock lock(mutex_);
    const auto due = std::ranges::find(jobs_, host, &Job::host);
    if (due != jobs_.end()) {  // the pending trace will also contain what was recorded since
      due->groups = std::move(groups);
      return;
    }
    jobs_.push_back({std::move(host), std::move(groups), std::move(reason)});
  }
  dispatch(Duty::kTrace);
}

dsc_result_t TraceWriter::request() noexcept {
  if (is_forked_child()) return DSC_ERR_FORKED;
  if (enrolled_.load() == 0) return DSC_ERR_STATE;
  requested_.store(true);
  dispatch(Duty::kTrace);
  return DSC_OK;
}

void TraceWriter::add_requested() {
  if (!requested_.exchange(false)) return;
  std::vector<std::weak_ptr<HostGroup>> hosts;
  {
    MutexLock lock(mutex_);
    hosts = hosts_;
  }
  for (const auto& known : hosts)
    if (auto host = known.lock()) post(std::move(host), "request");
}

void TraceWriter::write(const Job& job) {
  const std::string path = trace_path(job.host->trace_folder(), job.host->global_rank(job.host->rank()));
  capture([&] { replace_file(path, trace_text(*job.host, job.groups, job.reason)); },
          [](dsc_result_t, const char* text) { log(DSC_LOG_LEVEL_ERROR, "trace: %s", text); });
}

// Sets `writing_`, and clears it even if writing throws, so that exit does not wait for a writer that ran out
// of memory.
struct TraceWriter::Writing {
  explicit Writing(TraceWriter& writer) : writer(writer) { writer.set_writing(true); }
  ~Writing() { writer.set_writing(false); }
  TraceWriter& writer;
};

void TraceWriter::write_all() {
  const Writing writing(*this);
  add_requested();
  for (std::vector<Job> jobs = take_jobs(); !jobs.empty(); jobs = take_jobs())
    for (const Job& job : jobs) write(job);
}

std::vector<TraceWriter::Job> TraceWriter::take_jobs() {
  MutexLock lock(mutex_);
  return std::exchange(jobs_, {});
}

void TraceWriter::set_writing(bool writing) {
  MutexLock lock(mutex_);
  writing_ = writing;
  changed_.notify_all();
}

void TraceWriter::drain() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  MutexLock lock(mutex_);
  while (writing_ || !jobs_.empty() || requested_.load())
    if (changed_.wait_until(mutex_, end) == std::cv_status::timeout) return;
}

void TraceWriter::drain_at_exit() {
  if (enrolled_.load() > 0 && !is_forked_child()) get().drain();
}

namespace {
__attribute__((destructor)) void drain_traces() { TraceWriter::drain_at_exit(); }
}  // namespace

}  // namespace dsc
