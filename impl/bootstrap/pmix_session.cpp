#include "bootstrap/pmix_session.hpp"

#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "base/error.hpp"
#include "base/mutex.hpp"
#include "bootstrap/pmix_events.hpp"
#include "bootstrap/run_until.hpp"

namespace dsc {
namespace {

Mutex session_mutex;

}  // namespace

PmixSession::PmixSession(const PmixLibrary& library) : library_(library), process_(getpid()) {
  const pmix_status_t status = library_.init(&self_, nullptr, 0);
  if (status != PMIX_SUCCESS)
    fail(DSC_ERR_SYSTEM, "the PMIx server cannot be reached: %s", library_.error_string(status));
  watch_pmix_events(library_, self_);
}

// Finalizes the connection when the process ends, because a launcher treats a process that ends without
// finalizing as failed. A forked child must not touch the connection. It is not finalized earlier, because
// with Open MPI 4.1.4 MPI_Init fails after PMIx_Finalize.
PmixSession::~PmixSession() {
  if (getpid() == process_) library_.finalize(nullptr, 0);
}

const PmixSession& PmixSession::opened(const PmixLibrary& library) {
  MutexLock lock(session_mutex);
  static const PmixSession session(library);  // if the constructor throws, the next call tries again
  return session;
}

// Connects on a separate thread, because connecting has no timeout.
const PmixSession& PmixSession::connect(const Environment& environment, Deadline deadline) {
  const PmixLibrary library = load_pmix(environment);
  const auto session = std::make_shared<const PmixSession*>(nullptr);
  run_until(
      deadline, "dsc-pmix", [library, session] { *session = &opened(library); },
      "the PMIx server did not answer in time");
  return **session;
}

pmix_proc_t PmixSession::member(uint32_t rank) const {
  pmix_proc_t member = self_;
  member.rank = rank;
  return member;
}

PmixJob PmixSession::job() const {
  const pmix_proc_t everybody = member(PMIX_RANK_WILDCARD);
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

// Reads a property of the job. Servers provide these properties to every process at its start, so this does
// not wait.
std::optional<int32_t> PmixSession::number(const pmix_proc_t& whose, const char* key) const {
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

}  // namespace dsc
