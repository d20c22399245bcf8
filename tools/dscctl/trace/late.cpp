// Finds the ranks that other ranks are waiting for.
#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "dscctl/trace/findings.hpp"
#include "dscctl/trace/text.hpp"

namespace dscctl::trace {
namespace {

constexpr const char* kTimeout = "DSC_ERR_TIMEOUT";

struct Waiter {
  int rank = 0;
  const Dump* dump = nullptr;
  TimeNs since = 0;
  TimeNs until = 0;  // when it gave up, or when its dump was taken
  bool timed_out = false;
  bool on_device = false;  // the wait happens on its stream
  bool is_sure = true;     // it certainly still waits
};

// A rank that waits for another rank in an operation.
struct Wait {
  int waiter = 0;
  int awaited = 0;
  const Operation* operation = nullptr;
};

// Returns a waiter if this participant waits, or gave up waiting, because another rank has not arrived.
std::optional<Waiter> as_waiter(const Participant& participant) {
  const Entry* entry = participant.entry;
  if (entry == nullptr || entry->met || (entry->completed && !entry->failed())) return std::nullopt;
  const TimeNs until = entry->completed.value_or(participant.dump->time);
  const bool timed_out = entry->result == kTimeout;
  if (entry->on_device)
    return Waiter{participant.rank,   participant.dump, entry->created, until, timed_out, true,
                  !entry->end_unknown};
  if (!entry->started) return std::nullopt;
  return Waiter{participant.rank, participant.dump, *entry->started, until, timed_out};
}

// Times of different hosts are not comparable.
bool share_clock(const Dump& a, const Dump& b) { return a.host == b.host; }

// The time in which ranks waited: from the first start of a wait until the last rank gave up or wrote its
// dump.
struct Span {
  TimeNs begin = 0;
  TimeNs end = 0;
};

// Returns the span on the clock of one dump. If the waiting ranks have another clock, the span has the same
// length and ends at the time of the dump.
Span span_of(const std::vector<Waiter>& waiters, const Dump& dump) {
  Span span{std::numeric_limits<TimeNs>::max(), 0};
  int64_t longest = 0;
  for (const Waiter& waiter : waiters) {
    longest = std::max(longest, waiter.until - waiter.since);
    if (!share_clock(*waiter.dump, dump)) continue;
    span.begin = std::min(span.begin, waiter.since);
    span.end = std::max(span.end, waiter.until);
  }
  return span.begin <= span.end ? span : Span{dump.time - longest, dump.time};
}

// Returns the operation that a rank was in for most of the time in which others waited for it. It must take
// at least half of that time.
const Entry* meanwhile(const Dump& dump, const Entry* other_than, const Span& span) {
  const Entry* longest = nullptr;
  int64_t most = std::max<int64_t>(1, (span.end - span.begin) / 2);
  for (const Entry& entry : dump.entries) {
    if (&entry == other_than || !entry.started || entry.end_unknown) continue;
    const TimeNs end = std::min(entry.completed.value_or(dump.time), span.end);
    const int64_t overlap = end - std::max(*entry.started, span.begin);
    if (overlap < most) continue;
    most = overlap;
    longest = &entry;
  }
  return longest;
}

// If a rank has destroyed a group, its dump does not contain the group.
bool has_left(const Participant& participant, const Operation& operation) {
  return participant.dump != nullptr && !participant.dump->groups.contains(operation.group);
}

// Newer records may have overwritten the record of the call; then it is unknown whether the rank called.
bool has_not_called(const Participant& participant, const Operation& operation) {
  if (participant.dump == nullptr || participant.entry != nullptr) return false;
  if (has_left(participant, operation)) return true;
  if (!operation.is_message) return participant.dump->groups.at(operation.group).called < operation.sequence;
  const bool is_sender = &participant == &operation.participants[0];
  const int peer = operation.participants[is_sender ? 1 : 0].rank;
  return std::none_of(participant.dump->entries.begin(), participant.dump->entries.end(),
                      [&](const Entry& e) {
                        return e.is_message && e.group == operation.group && e.is_send() == is_sender &&
                               e.peer == peer && e.sequence > operation.sequence;
                      });
}

// For each host, the time when its first rank gave up waiting. A rank that arrives later is too late.
using GaveUp = std::map<std::string, TimeNs>;

GaveUp first_gave_up(const Operation& operation) {
  GaveUp first;
  for (const Participant& participant : operation.participants) {
    const Entry* entry = participant.entry;
    if (entry == nullptr || entry->result != kTimeout || !entry->completed) continue;
    TimeNs& time = first.try_emplace(participant.dump->host, *entry->completed).first->second;
    time = std::min(time, *entry->completed);
  }
  return first;
}

bool came_after(const Participant& participant, const GaveUp& gave_up) {
  if (participant.entry == nullptr) return false;
  const auto first = gave_up.find(participant.dump->host);
  return first != gave_up.end() && participant.entry->created > first->second;
}

// True for an operation on the host that was called but is still queued. On a device, an operation may have
// to wait for others before it starts, so it does not count.
bool only_queued(const Participant& participant) {
  const Entry* entry = participant.entry;
  return entry != nullptr && !entry->on_device && !entry->started && entry->unfinished();
}

class LateFinder {
 public:
  LateFinder(const Trace& trace, const std::vector<Operation>& operations, const Rules& rules)
      : trace_(trace), operations_(operations), rules_(rules) {}

  std::vector<Finding> find() {
    for (const Operation& operation : operations_) {
      if (done_.contains(lane_of(operation)) || !examine(operation)) continue;
      done_.insert(lane_of(operation));  // later operations of this lane wait for the same reason
    }
    find_deadlock();
    return std::move(findings_);
  }

 private:
  using Lane = std::tuple<size_t, bool, int, int>;

  static Lane lane_of(const Operation& operation) {
    if (!operation.is_message) return {operation.group, false, 0, 0};
    return {operation.group, true, operation.participants[0].rank, operation.participants[1].rank};
  }

  // Returns true if a rank waits in this operation for a rank that has not arrived.
  bool examine(const Operation& operation) {
    const GaveUp gave_up = first_gave_up(operation);
    std::vector<Waiter> waiters;
    for (const Participant& participant : operation.participants) {
      const auto waiter = as_waiter(participant);
      if (waiter && !came_after(participant, gave_up)) waiters.push_back(*waiter);
    }
    if (waiters.empty()) return false;
    std::map<std::string, std::vector<int>> late;  // ranks by the text about them
    std::vector<int> without_dump;
    for (const Participant& participant : operation.participants) {
      if (participant.dump == nullptr) {
        if (is_late(sure(waiters), nullptr)) without_dump.push_back(participant.rank);
      } else if (has_not_called(participant, operation) || only_queued(participant) ||
                 came_after(participant, gave_up)) {
        // If a rank has left, or the record of a message may be overwritten, it may have made the call. Then
        // only ranks that certainly wait are considered.
        const bool only_sure = operation.is_message || has_left(participant, operation);
        if (!is_late(only_sure ? sure(waiters) : waiters, participant.dump)) continue;
        late[story(participant, operation, span_of(waiters, *participant.dump))].push_back(participant.rank);
        for (const Waiter& waiter : sure(waiters))
          waits_.push_back({waiter.rank, participant.rank, &operation});
      }
    }
    for (const auto& [said, ranks] : late) report(operation, ranks, said, waiters);
    if (late.empty() && !without_dump.empty()) report_absent(operation, without_dump, sure(waiters));
    return !late.empty() || !without_dump.empty();
  }

  static std::vector<Waiter> sure(std::vector<Waiter> waiters) {
    std::erase_if(waiters, [](const Waiter& waiter) { return !waiter.is_sure; });
    return waiters;
  }

  // A dump says nothing about the time after it was taken.
  bool is_late(const std::vector<Waiter>& waiters, const Dump* dump) const {
    return std::any_of(waiters.begin(), waiters.end(), [&](const Waiter& waiter) {
      const bool comparable = dump != nullptr && share_clock(*waiter.dump, *dump);
      if (comparable && dump->time < waiter.since) return false;
      if (waiter.timed_out) return true;
      const TimeNs until = comparable ? std::min(waiter.until, dump->time) : waiter.until;
      return until - waiter.since >= rules_.late_after_ns;
    });
  }

  // Describes what a late rank was doing instead. Ranks in the same state get the same text.
  std::string story(const Participant& participant, const Operation& operation, const Span& span) const {
    const Dump& dump = *participant.dump;
    const bool left = has_left(participant, operation);
    std::string text = left ? "left the group before " : verb(participant, span);
    text += title_for(participant, operation);
    if (!operation.is_message && !left) text += latest_of(dump, operation);
    const Entry* other = meanwhile(dump, participant.entry, span);
    if (other == nullptr) return text + "; no other operation is in progress";
    const std::string duration = duration_text(other->completed.value_or(dump.time) - *other->started);
    const bool inside = other->unfinished();
    return text + (inside ? "; now in " : "; meanwhile in ") + title(trace_, *other) + " for " + duration;
  }

  static std::string verb(const Participant& participant, const Span& span) {
    if (participant.entry == nullptr) return "not called ";
    if (participant.entry->unfinished()) return "called, but not started, ";
    return "called, but " + duration_text(participant.entry->created - span.end) + " late, ";
  }

  std::string title_for(const Participant& participant, const Operation& operation) const {
    if (!operation.is_message) return title(trace_, operation);
    const bool is_sender = &participant == &operation.participants[0];
    return (is_sender ? "send number " : "recv number ") + std::to_string(operation.sequence) +
           (is_sender ? " to rank " : " from rank ") +
           std::to_string(operation.participants[is_sender ? 1 : 0].rank) + " of group \"" +
           trace_.groups[operation.group].name + "\"";
  }

  // For operations on devices it is not always known which ones have completed, so the latest call is shown.
  static std::string latest_of(const Dump& dump, const Operation& operation) {
    const std::string done = operation.on_device() ? "called" : "completed";
    const Progress& progress = dump.groups.at(operation.group);
    const int64_t number = operation.on_device() ? progress.called : progress.completed;
    if (number <= 0) return "; " + done + " no collective of this group";
    for (const Entry& entry : dump.entries)
      if (!entry.is_message && entry.group == operation.group && entry.sequence == number)
        return "; last " + done + " collective " + std::to_string(number) + " (" + entry.name + ")";
    return "; last " + done + " collective " + std::to_string(number);
  }

  static std::string waiting_text(const std::vector<Waiter>& waiters) {
    std::vector<int> ranks;
    int64_t longest = 0;
    bool timed_out = false, on_device = false;
    for (const Waiter& waiter : waiters) {
      on_device = on_device || waiter.on_device;
      ranks.push_back(waiter.rank);
      longest = std::max(longest, waiter.until - waiter.since);
      timed_out = timed_out || waiter.timed_out;
    }
    const std::string duration = duration_text(longest);
    if (timed_out) return ranks_text(ranks) + " waited " + duration + " until the time-out";
    if (on_device) return ranks_text(ranks) + " called it " + duration + " earlier";
    return ranks_text(ranks) + (ranks.size() == 1 ? " has waited " : " have waited ") + duration;
  }

  void report(const Operation& operation, const std::vector<int>& ranks, const std::string& said,
              const std::vector<Waiter>& waiters) {
    const std::string have = ranks.size() == 1 ? " has " : " have ";
    findings_.push_back(
        {Kind::kLate, ranks_text(ranks) + have + said + "; " + waiting_text(waiters), ranks, &operation});
  }

  void report_absent(const Operation& operation, const std::vector<int>& ranks,
                     const std::vector<Waiter>& waiters) {
    const std::string who = ranks.size() == 1
                                ? ranks_text(ranks) + ", which wrote no dump,"
                                : "at least one of " + ranks_text(ranks) + ", which wrote no dumps,";
    findings_.push_back(
        {Kind::kLate, who + " has not arrived at " + title(trace_, operation) + "; " + waiting_text(waiters),
         ranks, &operation});
  }

  void find_deadlock() {
    std::map<int, std::vector<const Wait*>> waits_of;
    for (const Wait& wait : waits_) waits_of[wait.waiter].push_back(&wait);
    std::set<int> seen;
    for (const Wait& first : waits_) {
      std::vector<Wait> path;
      if (seen.contains(first.waiter) || !find_circle(first.waiter, waits_of, seen, path)) continue;
      report_deadlock(path);
      return;
    }
  }

  // Follows all waits of a rank, depth first, until a wait leads back to a rank on the path. Then leaves this
  // circle in `path`.
  static bool find_circle(int rank, const std::map<int, std::vector<const Wait*>>& waits_of,
                          std::set<int>& seen, std::vector<Wait>& path) {
    const auto begin =
        std::find_if(path.begin(), path.end(), [&](const Wait& wait) { return wait.waiter == rank; });
    if (begin != path.end()) {
      path.erase(path.begin(), begin);
      return true;
    }
    const auto waits = waits_of.find(rank);
    if (waits == waits_of.end() || !seen.insert(rank).second) return false;
    for (const Wait* wait : waits->second) {
      path.push_back(*wait);
      if (find_circle(wait->awaited, waits_of, seen, path)) return true;
      path.pop_back();
    }
    return false;
  }

  void report_deadlock(const std::vector<Wait>& path) {
    std::vector<int> ranks;
    std::string text;
    for (const Wait& wait : path) {
      ranks.push_back(wait.waiter);
      text += (text.empty() ? "rank " : "; rank ") + std::to_string(wait.waiter) + " waits for rank " +
              std::to_string(wait.awaited) + " in " + title(trace_, *wait.operation);
    }
    // Inserted before the findings about ranks that are late because of the deadlock.
    findings_.insert(findings_.begin(), {Kind::kDeadlock, ranks_text(ranks) + " wait for each other: " + text,
                                         ranks, path.front().operation});
  }

  const Trace& trace_;
  const std::vector<Operation>& operations_;
  const Rules rules_;
  std::set<Lane> done_;
  std::vector<Wait> waits_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> find_late(const Trace& trace, const std::vector<Operation>& operations,
                               const Rules& rules) {
  return LateFinder(trace, operations, rules).find();
}

}  // namespace dscctl::trace
