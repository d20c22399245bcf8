#include "bootstrap/pmix_events.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "base/guard.hpp"
#include "base/log.hpp"
#include "base/mutex.hpp"

namespace dsc {
namespace {

constexpr size_t kMostEvents = 1024;

// The events that this process has received.
struct Events {
  Mutex mutex;
  std::string job DSC_GUARDED_BY(mutex);  // namespace of the job, in which ranks are numbered
  std::vector<PmixEvent> all DSC_GUARDED_BY(mutex);
};

// Never destroyed, because libpmix's thread may still use it while the process ends.
Events& events() {
  static Events& instance = *new Events;
  return instance;
}

int32_t rank_of(const pmix_proc_t& process) {
  MutexLock lock(events().mutex);
  if (events().job != process.nspace) return -1;
  return process.rank <= PMIX_RANK_VALID ? static_cast<int32_t>(process.rank) : -1;
}

// Returns the rank that the event is about. `source` is not sufficient, because it may be the server that
// reports the event.
int32_t affected_rank(const pmix_proc_t* source, const pmix_info_t* info, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (std::string_view(info[i].key) == PMIX_EVENT_AFFECTED_PROC && info[i].value.type == PMIX_PROC &&
        info[i].value.data.proc)
      return rank_of(*info[i].value.data.proc);
  return source ? rank_of(*source) : -1;
}

void keep(const PmixEvent& event) {
  log(DSC_LOG_LEVEL_WARN, "PMIx reports status %d of rank %d", event.status, event.rank);
  MutexLock lock(events().mutex);
  if (events().all.size() < kMostEvents) events().all.push_back(event);
}

// Runs on libpmix's thread. It must call `go_on`, because otherwise libpmix runs no further handlers.
void on_event(size_t, pmix_status_t status, const pmix_proc_t* source, pmix_info_t info[], size_t count,
              pmix_info_t*, size_t, pmix_event_notification_cbfunc_fn_t go_on, void* chain) {
  capture(
      [&] {
        keep({status, affected_rank(source, info, count)});
      },
      [](dsc_result_t, const char* text) { log(DSC_LOG_LEVEL_WARN, "an event of PMIx is lost: %s", text); });
  if (go_on) go_on(PMIX_EVENT_NO_ACTION_TAKEN, nullptr, 0, nullptr, nullptr, chain);
}

void on_registered(pmix_status_t status, size_t, void*) {
  if (status != PMIX_SUCCESS)
    log(DSC_LOG_LEVEL_DEBUG, "the PMIx server reports no events: status %d", status);
}

}  // namespace

void watch_pmix_events(const PmixLibrary& library, const pmix_proc_t& self) {
  {
    MutexLock lock(events().mutex);
    events().job = self.nspace;
  }
  static std::array<pmix_status_t, 7> codes = {PMIX_ERR_PROC_ABORTED,
                                               PMIX_ERR_PROC_ABORTED_BY_SIG,
                                               PMIX_ERR_PROC_TERM_WO_SYNC,
                                               PMIX_EVENT_PROC_TERMINATED,
                                               PMIX_PROC_TERMINATED,
                                               PMIX_ERR_LOST_CONNECTION,
                                               PMIX_ERR_LOST_CONNECTION_TO_SERVER};
  library.register_events(codes.data(), codes.size(), nullptr, 0, on_event, on_registered, nullptr);
}

std::vector<PmixEvent> pmix_events() {
  MutexLock lock(events().mutex);
  return events().all;
}

bool pmix_server_is_lost() {
  MutexLock lock(events().mutex);
  return std::any_of(events().all.begin(), events().all.end(), [](const PmixEvent& event) {
    return event.status == PMIX_ERR_LOST_CONNECTION || event.status == PMIX_ERR_LOST_CONNECTION_TO_SERVER;
  });
}

}  // namespace dsc
