#include "bootstrap/pmix_exchange.hpp"

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/mutex.hpp"
#include "bootstrap/pmix_events.hpp"
#include "bootstrap/run_until.hpp"
#include "bootstrap/unix_socket.hpp"

namespace dsc {
namespace {

constexpr int64_t kAskAgainMs = 20;     // pause before the server is asked again for a missing value
constexpr int64_t kServerLookMs = 100;  // interval of checks that the server still runs
constexpr int kAnswerS = 2;             // time that the server may take for one request, in seconds

// One request to the server, with its arguments, which libpmix reads on its own thread. It is freed when the
// caller and the callback have both released it.
struct Question {
  pmix_proc_t owner{};
  std::string key;
  pmix_info_t time_limit{};

  Mutex mutex;
  Condition changed;
  bool over DSC_GUARDED_BY(mutex) = false;
  pmix_status_t status DSC_GUARDED_BY(mutex) = PMIX_SUCCESS;
  std::string value DSC_GUARDED_BY(mutex);

  void answer(pmix_status_t came, std::string text) {
    MutexLock lock(mutex);
    over = true;
    status = came;
    value = std::move(text);
    changed.notify_all();
  }
};

using Share = std::shared_ptr<Question>;

// Runs on libpmix's thread, possibly long after the caller has stopped waiting.
void on_value(pmix_status_t status, pmix_value_t* value, void* context) {
  const std::unique_ptr<Share> question(static_cast<Share*>(context));
  capture(
      [&] {
        std::string text;
        if (status == PMIX_SUCCESS && value && value->type == PMIX_BYTE_OBJECT)
          text.assign(value->data.bo.bytes, value->data.bo.size);
        else if (status == PMIX_SUCCESS)
          status = PMIX_ERR_TYPE_MISMATCH;
        (*question)->answer(status, std::move(text));
      },
      [&](dsc_result_t, const char*) { (*question)->answer(PMIX_ERR_NOMEM, ""); });
}

Share ask(const PmixLibrary& library, const pmix_proc_t& owner, const std::string& key) {
  Share question = std::make_shared<Question>();
  question->owner = owner;
  question->key = key;
  std::copy_n(PMIX_TIMEOUT, sizeof PMIX_TIMEOUT, question->time_limit.key);
  question->time_limit.value.type = PMIX_INT;
  question->time_limit.value.data.integer = kAnswerS;
  auto share = std::make_unique<Share>(question);
  const pmix_status_t status = library.get_nb(&question->owner, question->key.c_str(), &question->time_limit,
                                              1, on_value, share.get());
  if (status == PMIX_SUCCESS)
    static_cast<void>(share.release());  // libpmix accepted the request, so the callback releases it
  else
    question->answer(status, "");
  return question;
}

// Waits for the answer of the server. Returns false if the deadline passed first. Also checks the connection,
// because a server that has ended calls no callback.
bool wait(Question& question, Deadline deadline, pmix_status_t& status, std::string& value) {
  MutexLock lock(question.mutex);
  while (!question.over) {
    if (pmix_server_is_lost()) fail(DSC_ERR_SYSTEM, "the PMIx server is gone");
    const int64_t left_ns = deadline.remaining_ns();
    if (left_ns == 0) return false;
    question.changed.wait_for(question.mutex,
                              std::chrono::nanoseconds(std::min(left_ns, kServerLookMs * kNsPerMs)));
  }
  status = question.status;
  value = std::move(question.value);
  return true;
}

// Returns whether the key may still be put. Servers return one of these results for a key that has not been
// put yet.
bool may_still_come(pmix_status_t status) {
  return status == PMIX_ERR_NOT_FOUND || status == PMIX_ERR_TIMEOUT;
}

}  // namespace

PmixExchange::PmixExchange(const PmixSession& session, uint32_t world)
    : session_(session), prefix_("dsc." + std::to_string(world) + ".") {}

std::string PmixExchange::full_key(std::string_view key) const {
  if (key.size() > kMostKeyBytes)
    fail(DSC_ERR_INVALID_ARG, "the key has %zu bytes, expected at most %zu", key.size(), kMostKeyBytes);
  return prefix_ + std::string(key);
}

void PmixExchange::put(std::string_view key, std::string_view value, Deadline deadline) {
  const auto store = [library = session_.library(), key = full_key(key),
                      value = std::string(value)]() mutable {
    pmix_value_t object{};
    object.type = PMIX_BYTE_OBJECT;
    object.data.bo = {value.data(), value.size()};
    pmix_status_t status = library.put(PMIX_GLOBAL, key.c_str(), &object);  // libpmix copies the value
    if (status == PMIX_SUCCESS) status = library.commit();
    if (status != PMIX_SUCCESS)
      fail(DSC_ERR_SYSTEM, "PMIx refuses the key '%s': %s", key.c_str(), library.error_string(status));
  };
  const std::string late = "the PMIx server did not store the key '" + std::string(key) + "' in time";
  run_until(deadline, "dsc-pmix", store, late.c_str());
}

// Asks repeatedly, because Open MPI's server sometimes answers immediately that there is no such key,
// although it was asked to wait for the key.
std::string PmixExchange::get(std::string_view key, int32_t owner, Deadline deadline) {
  const PmixLibrary& library = session_.library();
  const pmix_proc_t process = session_.member(static_cast<uint32_t>(owner));
  const std::string name = full_key(key);
  pmix_status_t status = PMIX_ERR_TIMEOUT;
  std::string value;
  while (wait(*ask(library, process, name), deadline, status, value)) {
    if (status == PMIX_SUCCESS) return value;
    if (!may_still_come(status) || pmix_server_is_lost())
      fail(DSC_ERR_SYSTEM, "PMIx cannot give the key '%s' of rank %d: %s", name.c_str(), owner,
           library.error_string(status));
    if (deadline.passed()) break;
    sleep_until(sooner(deadline, Deadline::after_ms(kAskAgainMs)));
  }
  fail(DSC_ERR_TIMEOUT, "the key '%s' of rank %d did not arrive through PMIx in time", name.c_str(), owner);
}

}  // namespace dsc
