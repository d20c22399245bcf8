#include "control/job_control.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/log.hpp"
#include "base/wait.hpp"
#include "store/bytes.hpp"

namespace dsc {
namespace {

// Limit for a request to the store. If the store does not answer, the call reports this at most one second
// after the limit.
constexpr int kStoreMs = 500;
constexpr int kAnswersMs = 1000;  // time after the deadline to collect answers that were sent before it
constexpr size_t kMostAnswer = 512;
constexpr const char* kNoAnswer = "no answer";
constexpr int kAcknowledgeMs = 2000;
constexpr int kAcknowledgeSliceMs = 20;
// Key of the list of ranks that know that rank 0 has left.
constexpr const char* kAcknowledgedKey = "control/acknowledged";

std::string cause_key(uint64_t group_id) { return "control/fail/" + std::to_string(group_id); }

std::string answer_key(uint64_t question, int32_t rank) {
  return "control/latest/" + std::to_string(question) + "/" + std::to_string(rank);
}

void log_failed(const char* what, const char* text) { log(DSC_LOG_LEVEL_WARN, "%s: %s", what, text); }

}  // namespace

JobControl::JobControl(JobControlSettings settings, JobListener& listener, Deadline deadline)
    : settings_(std::move(settings)),
      listener_(listener),
      gone_(static_cast<size_t>(settings_.world_size), DSC_OK),
      watch_({settings_.job->target(), settings_.rank, settings_.hosts, settings_.world_size,
              settings_.stall_timeout_ms, settings_.log_bytes},
             *this, deadline) {}

void JobControl::append(const JobEvent& event, Deadline deadline) {
  watch_.job_log().append(encode(event), [&](const std::string& key, const std::string& record) {
    return settings_.job->store().append(key, record, deadline);
  });
}

// The compare-and-set decides which of several causes is valid. Only the rank whose cause is chosen appends
// the event.
Failure JobControl::publish(uint64_t group_id, const Failure& cause, const std::vector<RankGone>& gone) {
  Failure first = cause;
  capture(
      [&] {
        for (const RankGone& rank : gone)
          if (!is_gone(rank.rank)) append(rank, Deadline::after_ms(kStoreMs));
        const std::string own = encode(cause);
        const std::string said =
            settings_.job->store().compare_set(cause_key(group_id), "", own, Deadline::after_ms(kStoreMs));
        if (said == own) return append(GroupFailed{group_id, cause}, Deadline::after_ms(kStoreMs));
        if (auto other = decode_failure(said)) first = *other;
      },
      [&](dsc_result_t, const char* text) {
        log_failed("the other hosts cannot be informed of a failure yet", text);
        MutexLock lock(mutex_);
        unpublished_.emplace(group_id, cause);
      });
  return first;
}

// Appends an empty record, which returns the length of the log, and waits until the log has been read up to
// this length.
void JobControl::catch_up(Deadline deadline) noexcept {
  capture(
      [&] {
        const uint64_t number = watch_.job_log().number();
        const size_t bytes = settings_.job->store().append(JobLog::key_of(number), "", deadline);
        while (!watch_.has_read(number, bytes) && !deadline.passed()) sleep_until(Deadline::after_ms(1));
      },
      [](dsc_result_t, const char* text) {
        log_failed("the state of the other hosts cannot be read from the store", text);
      });
}

bool JobControl::announce(const GroupLeft& left) noexcept {
  return capture([&] { append(left, Deadline::after_ms(kStoreMs)); },
                 [](dsc_result_t, const char* text) {
                   log_failed("the other hosts cannot be informed that this rank leaves", text);
                 });
}

// Publishes the stopped ranks of this host, and the causes that the store has not accepted yet. The store may
// have accepted a cause but not its event. The event may then be published twice, which is harmless. It is
// also harmless if several ranks of a host report the same stopped rank.
void JobControl::on_round() {
  for (const RankGone& rank : settings_.stalled_here())
    if (!is_gone(rank.rank)) watch_.append(rank);
  std::map<uint64_t, Failure> unpublished;
  {
    MutexLock lock(mutex_);
    unpublished.swap(unpublished_);
  }
  for (const auto& [group_id, cause] : unpublished) {
    const StoreReply said = watch_.call({StoreOp::kCompareSet, {cause_key(group_id)}, encode(cause), {}, 0});
    if (const auto first = decode_failure(said.value)) watch_.append(GroupFailed{group_id, *first});
  }
}

// The key of an election holds the latest sequence number and the rank that claimed it. A claim succeeds only
// if its sequence number is higher than the one in the key.
bool JobControl::elect(const char* what, uint64_t group_id, uint64_t sequence, Deadline deadline) {
  bool claimed = true;
  capture(
      [&] {
        const std::string key = "control/" + std::string(what) + "/" + std::to_string(group_id);
        const std::string mine = std::to_string(sequence) + " " + std::to_string(settings_.rank);
        std::string known;
        for (;;) {
          const std::string said = settings_.job->store().compare_set(key, known, mine, deadline);
          claimed = said == mine;
          if (claimed || std::strtoull(said.c_str(), nullptr, 10) >= sequence) return;
          known = said;
        }
      },
      [](dsc_result_t, const char* text) {
        log_failed("the state of the other hosts cannot be read from the store", text);
      });
  return claimed;
}

// The question is appended to the log. Each rank answers under its own key, which is deleted after it was
// read.
std::vector<std::string> JobControl::ask(uint64_t group_id, const std::vector<int32_t>& ranks,
                                         const std::string& question, Deadline deadline) {
  std::vector<std::string> answers(ranks.size(), kNoAnswer);
  if (deadline.passed()) return answers;
  capture(
      [&] {
        Store& store = settings_.job->store();
        const auto number = static_cast<uint64_t>(store.add("control/questions", 1, deadline));
        append(LatestAsked{number, group_id, ranks, question}, deadline);
        const Deadline last{deadline.ns + kAnswersMs * kNsPerMs};
        for (size_t i = 0; i < std::min(ranks.size(), kMostAskedRanks) && !last.passed(); ++i) {
          if (is_gone(ranks[i])) continue;
          const std::string key = answer_key(number, ranks[i]);
          capture([&] { answers[i] = store.get(key, deadline); }, [](dsc_result_t, const char*) {});
          if (!last.passed()) store.remove(key, last);
        }
      },
      [](dsc_result_t, const char* text) {
        log_failed("the state of the other hosts cannot be read from the store", text);
      });
  return answers;
}

void JobControl::stop_listening() noexcept {
  MutexLock lock(mutex_);
  stopped_listening_ = true;
  while (calling_ && !watch_.runs_here()) changed_.wait(mutex_);
}

void JobControl::leave(Deadline deadline) noexcept {
  stop_listening();
  capture(
      [&] {
        append(RankGone{settings_.rank, DSC_ERR_PEER_LEFT, 0}, Deadline::after_ms(kStoreMs));
        if (settings_.rank == 0) await_acknowledgements(sooner(deadline, Deadline::after_ms(kAcknowledgeMs)));
      },
      [](dsc_result_t, const char* text) {
        log_failed("the other hosts cannot be informed that this rank leaves", text);
      });
}

// Waits until all ranks that are still present have acknowledged that rank 0 leaves.
void JobControl::await_acknowledgements(Deadline deadline) {
  std::set<int32_t> missing;
  for (int32_t rank = 1; rank < settings_.world_size; ++rank) missing.insert(rank);
  for (size_t read = 0; !missing.empty() && !deadline.passed();) {
    std::string news;
    capture(
        [&] {
          const Deadline slice = sooner(deadline, Deadline::after_ms(kAcknowledgeSliceMs));
          news = settings_.job->store().follow(kAcknowledgedKey, read, slice);
        },
        [](dsc_result_t code, const char* text) {
          if (code != DSC_ERR_TIMEOUT) throw Error(code, text);
        });
    read += news.size();
    for (ByteReader reader(news); reader.left() > 0 && reader.good();)
      missing.erase(static_cast<int32_t>(reader.number<uint32_t>()));
    std::erase_if(missing, [this](int32_t rank) { return is_gone(rank); });
  }
}

void JobControl::on_event(const JobEvent& event) {
  std::visit([this](const auto& one) { take(one); }, event);
}

void JobControl::take(const RankGone& gone) {
  if (gone.rank == 0 && gone.code == DSC_ERR_PEER_LEFT && settings_.rank != 0) {
    ByteWriter own;
    own.number(static_cast<uint32_t>(settings_.rank));
    watch_.call({StoreOp::kAppend, {kAcknowledgedKey}, own.take(), {}, 0});
  }
  if (gone.rank >= settings_.world_size || !set_gone(gone.rank, gone.code)) return;
  if ((gone.rank == settings_.rank || ignores_ends_.load()) && gone.code != DSC_ERR_PEER_STALLED) return;
  const std::string text = describe(gone);
  call_listener([&] { listener_.on_gone(gone.rank, gone.code, text); });
}

void JobControl::take(const RankUnresponsive& event) {
  if (event.rank < settings_.world_size && event.rank != settings_.rank)
    call_listener([&] { listener_.on_unresponsive(event.rank, event.unresponsive); });
}

void JobControl::take(const GroupFailed& failed) {
  if (failed_.insert(failed.group).second)
    call_listener([&] { listener_.on_failure(failed.group, failed.cause); });
}

void JobControl::take(const LatestAsked& asked) {
  if (std::ranges::find(asked.ranks, settings_.rank) == asked.ranks.end()) return;
  std::optional<std::string> answer;
  call_listener([&] { answer = listener_.answer(asked.group, asked.question).substr(0, kMostAnswer); });
  if (answer) watch_.call({StoreOp::kSet, {answer_key(asked.number, settings_.rank)}, *answer, {}, 0});
}

void JobControl::take(const GroupLeft& left) {
  call_listener([&] { listener_.on_left(left); });
}

void JobControl::on_server_unresponsive(bool unresponsive) {
  if (settings_.rank != 0) call_listener([&] { listener_.on_unresponsive(0, unresponsive); });
}

void JobControl::on_server_gone(dsc_result_t code, const std::string& text) {
  if (ignores_ends_.load() && code != DSC_ERR_PEER_STALLED) return;
  if (settings_.rank != 0 && set_gone(0, code)) call_listener([&] { listener_.on_gone(0, code, text); });
}

// Returns false if the end of the rank was already known.
bool JobControl::set_gone(int32_t rank, dsc_result_t code) {
  MutexLock lock(mutex_);
  dsc_result_t& known = gone_[static_cast<size_t>(rank)];
  if (known != DSC_OK) return false;
  known = code;
  return true;
}

bool JobControl::is_gone(int32_t rank) {
  MutexLock lock(mutex_);
  return rank < 0 || rank >= settings_.world_size || gone_[static_cast<size_t>(rank)] != DSC_OK;
}

template <typename Call>
void JobControl::call_listener(Call call) {
  {
    MutexLock lock(mutex_);
    if (stopped_listening_) return;
    calling_ = true;
  }
  call_out(call);
  MutexLock lock(mutex_);
  calling_ = false;
  changed_.notify_all();
}

}  // namespace dsc
