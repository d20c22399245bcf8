// Control between hosts, in one process: causes of failures, ends of ranks, questions, and invalid records.
#include <dirent.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cstring>
#include <random>

#include "base/wait.hpp"
#include "job_support.hpp"
#include "repetitions.h"
#include "stopped.hpp"

namespace {

using namespace dsc;
using namespace dsc::test;

Failure cause_of(const std::string& text) {
  Failure cause;
  cause.code = DSC_ERR_TIMEOUT;
  cause.ranks = {1, 2};
  cause.group = 9;
  cause.sequence = 77;
  cause.elapsed_ns = -1;
  cause.index = 5;
  cause.revoked = true;
  cause.operation = "all_reduce";
  cause.text = text;
  return cause;
}

// Returns ranks 0 to n - 1 as objects of this process.
std::vector<std::unique_ptr<JobRank>> make_job(int32_t world_size) {
  std::vector<std::unique_ptr<JobRank>> ranks;
  for (int32_t rank = 0; rank < world_size; ++rank)
    ranks.push_back(std::make_unique<JobRank>(rank, world_size, rank == 0 ? uint16_t{0} : ranks[0]->port()));
  return ranks;
}

void causes_travel_whole(void**) {
  const Failure sent = cause_of("late");
  const JobEvents got = decode_events(encode(GroupFailed{3, sent}));
  assert_int_equal(got.events.size(), 1);
  const auto& failed = std::get<GroupFailed>(got.events[0]);
  assert_int_equal(failed.group, 3);
  const Failure& cause = failed.cause;
  assert_int_equal(cause.code, sent.code);
  assert_int_equal(cause.rank(), 1);
  assert_true(cause.ranks == sent.ranks && cause.group == sent.group && cause.sequence == sent.sequence);
  assert_true(cause.elapsed_ns == -1 && cause.index == 5 && cause.revoked);
  assert_string_equal(cause.operation.c_str(), "all_reduce");
  assert_string_equal(cause.text.c_str(), "late");
  Failure long_one = cause_of(std::string(5000, 'x'));
  long_one.ranks = std::vector<int32_t>(5000, 1);
  const auto cut = decode_failure(encode(long_one));
  assert_true(cut && std::string_view(cut->text).size() == sizeof(cut->text) - 1);
  assert_int_equal(cut->ranks.size(), RankList::kMost);
}

void cut_and_changed_records_are_refused(void**) {
  const std::string good = encode(RankGone{2, DSC_ERR_PEER_LEFT, 5}) + encode(GroupFailed{3, cause_of("x")}) +
                           encode(LatestAsked{1, 2, {3, 4}, "which"}) + encode(RankUnresponsive{1, true}) +
                           encode(GroupLeft{6, 2, true});
  assert_int_equal(decode_events(good).events.size(), 5);
  assert_int_equal(decode_events(good).refused, 0);
  for (size_t bytes = 1; bytes < good.size(); ++bytes) {
    const JobEvents some = decode_events(std::string_view(good).substr(0, bytes));
    assert_true(some.events.size() < 5 && some.refused <= 1);
  }
  std::mt19937 random(1);
  const int cases = test_repetitions(200'000, 10'000);
  for (int i = 0; i < cases; ++i) {
    std::string bad = good.substr(0, random() % (good.size() + 1));
    for (size_t n = random() % 4; n > 0 && !bad.empty(); --n)
      bad[random() % bad.size()] = static_cast<char>(random());
    for (const JobEvent& event : decode_events(bad).events)
      // every accepted event can be encoded and decoded again
      assert_int_equal(decode_events(encode(event)).events.size(), 1);
  }
}

void the_first_cause_holds_everywhere(void**) {
  auto ranks = make_job(4);
  std::vector<std::thread> threads;
  std::vector<std::string> said(ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i)
    threads.emplace_back(
        [&, i] { said[i] = ranks[i]->control->publish(7, cause_of("cause " + std::to_string(i))).text; });
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < ranks.size(); ++i) {
    assert_string_equal(said[i].c_str(), said[0].c_str());
    assert_string_equal(ranks[i]->listener.await_failure().c_str(), said[0].c_str());
  }
  assert_string_equal(ranks[1]->control->publish(8, cause_of("another")).text.c_str(), "another");
  for (const auto& rank : ranks) {
    assert_string_equal(rank->listener.await_failure(1).c_str(), "another");
    assert_int_equal(rank->listener.calls(), 2);
  }
}

void who_leaves_is_not_dead(void**) {
  auto ranks = make_job(3);
  for (size_t i : {2, 1}) {
    ranks[i]->control->leave();
    ranks[i]->control.reset();
    for (size_t other = 0; other < i; ++other)
      assert_int_equal(ranks[other]->listener.await_gone(static_cast<int32_t>(i)).code, DSC_ERR_PEER_LEFT);
  }
  ranks[0]->control->leave();
}

void who_leaves_a_group_says_so(void**) {
  auto ranks = make_job(3);
  ranks[1]->control->announce({7, 1, true});
  for (const auto& rank : ranks) {
    const GroupLeft left = rank->listener.await_left();
    assert_true(left.group == 7 && left.rank == 1 && left.finalizes);
    assert_int_equal(rank->listener.calls(), 1);
  }
}

// The store ends with rank 0, but not before the other ranks know that rank 0 left.
void rank_0_that_leaves_is_not_dead(void**) {
  const int rounds = test_repetitions(50, 5);
  for (int i = 0; i < rounds; ++i) {
    auto ranks = make_job(4);
    ranks[3].reset();  // no rank waits for rank 3
    ranks[0]->control->leave();
    ranks[0].reset();
    for (size_t other : {1, 2})
      assert_int_equal(ranks[other]->listener.await_gone(0).code, DSC_ERR_PEER_LEFT);
  }
}

void rank_0_does_not_wait_for_long(void**) {
  const auto first = std::make_unique<JobRank>(0, 2, uint16_t{0});  // the other rank never arrived
  const int64_t start = now_ns();
  first->control->leave();
  const int64_t waited_ms = (now_ns() - start) / kNsPerMs;
  assert_true(waited_ms >= 2000 && waited_ms * kNsPerMs < kAtOnceNs);
}

void rank_0_does_not_wait_beyond_its_deadline(void**) {
  const auto first = std::make_unique<JobRank>(0, 2, uint16_t{0});  // the other rank never arrived
  const int64_t start = now_ns();
  first->control->leave(Deadline::after_ms(100));
  assert_true(now_ns() - start < 2000 * kNsPerMs);
}

void without_a_store_causes_are_kept(void**) {
  auto ranks = make_job(2);
  ranks[0]->control->leave();
  ranks[0].reset();
  const Failure kept = ranks[1]->control->publish(1, cause_of("own"));  // the store no longer exists
  assert_string_equal(kept.text.c_str(), "own");
  assert_int_equal(ranks[1]->listener.calls(), 1);
}

// Runs rank 0 of a job as a separate process, which can be stopped.
class ServingProcess {
 public:
  ServingProcess() {
    int ends[2];
    assert_int_equal(::pipe(ends), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // kills this process even if a check of the test fails
      ::dup2(ends[1], STDOUT_FILENO);
      ::execl("/proc/self/exe", "test_job_control", "serve", nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    assert_int_equal(::read(ends[0], &port_, sizeof port_), sizeof port_);
    ::close(ends[0]);
  }
  ~ServingProcess() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ServingProcess(const ServingProcess&) = delete;
  ServingProcess& operator=(const ServingProcess&) = delete;

  uint16_t port() const { return port_; }
  void stop() const { stop_process(pid_); }
  void go_on() const { assert_int_equal(::kill(pid_, SIGCONT), 0); }

  static int serve() {
    const JobRank rank(0, 3, 0);
    const uint16_t port = rank.port();
    if (::write(STDOUT_FILENO, &port, sizeof port) != sizeof port) return 1;
    for (;;) ::pause();
  }

 private:
  pid_t pid_ = -1;
  uint16_t port_ = 0;
};

void a_cause_is_told_once_the_store_answers_again(void**) {
  const ServingProcess first;
  JobRank second(1, 3, first.port()), third(2, 3, first.port());
  first.stop();
  const int64_t start = now_ns();
  const Failure kept = second.control->publish(7, cause_of("own"));
  assert_true(now_ns() - start < kAtOnceNs);
  assert_string_equal(kept.text.c_str(), "own");
  // A waiting operation calls elect() and ask().
  const Deadline deadline = Deadline::after_ms(500);
  const int64_t asked = now_ns();
  assert_true(second.control->elect("late", 7, 1, deadline));
  const std::vector<std::string> nothing = {"no answer"};
  assert_true(second.control->ask(7, {2}, "", deadline) == nothing);
  assert_true(now_ns() - asked < kAtOnceNs);
  first.go_on();
  assert_string_equal(third.listener.await_failure().c_str(), "own");
  assert_string_equal(second.listener.await_failure().c_str(), "own");
}

// The death of a rank that had not read the full log key to its end is appended to that key.
void a_death_at_the_change_of_keys_is_told(void**) {
  constexpr size_t kBytes = 3000;
  JobRank first(0, 3, 0, 0, kBytes);
  JobRank second(1, 3, first.port(), 0, kBytes);
  Channel::Failure failure;
  auto channel = Channel::connect(first.job->target(), soon(), failure);
  assert_true(channel != nullptr);
  const std::string death = encode(RankGone{2, DSC_ERR_PEER_DEAD, 5});
  const StoreRequest append{StoreOp::kAppend, {"control/log/0"}, death, {}, 0};
  channel->ask({StoreOp::kWill, {}, encode(append), {}, 0}, soon());
  size_t told = 0;
  for (const std::string next = "control/log/1"; !first.job->store().check({&next, 1}, soon()); ++told) {
    second.control->publish(told, cause_of("cause"));
    assert_string_equal(second.listener.await_failure(told).c_str(), "cause");
    assert_string_equal(first.listener.await_failure(told).c_str(), "cause");
  }
  channel.reset();
  assert_int_equal(second.listener.await_gone(2).code, DSC_ERR_PEER_DEAD);
  assert_int_equal(second.listener.calls(), told + 1);
}

void who_ends_without_a_word_is_dead(void**) {
  auto ranks = make_job(3);
  ranks[2].reset();
  for (int i : {0, 1}) {
    const Outcome gone = ranks[static_cast<size_t>(i)]->listener.await_gone(2);
    assert_int_equal(gone.code, DSC_ERR_PEER_DEAD);
    assert_non_null(std::strstr(gone.text.c_str(), "rank 2 (pid "));
  }
  ranks[0].reset();
  const Outcome gone = ranks[1]->listener.await_gone(0);
  assert_int_equal(gone.code, DSC_ERR_PEER_DEAD);
}

void after_leave_nothing_is_heard(void**) {
  auto ranks = make_job(3);
  ranks[1]->control->leave();
  ranks[2]->control->publish(1, cause_of("late"));
  assert_string_equal(ranks[0]->listener.await_failure().c_str(), "late");
  assert_int_equal(ranks[1]->listener.calls(), 0);
}

constexpr RankGone kStopped{2, DSC_ERR_PEER_STALLED, 5, 3100};

void who_is_stopped_is_told_by_the_ranks_of_its_host(void**) {
  JobRank first(0, 3, 0);
  JobRank second(1, 3, first.port(), 0, kJobLogBytes, [] { return std::vector<RankGone>{kStopped}; });
  JobRank third(2, 3, first.port());
  for (JobRank* rank : {&first, &second, &third}) {
    const Outcome gone = rank->listener.await_gone(2);
    assert_int_equal(gone.code, DSC_ERR_PEER_STALLED);
    assert_string_equal(gone.text.c_str(),
                        "rank 2 (pid 5) does not run: nothing was heard from it for 3.1 s");
  }
  sleep_until(Deadline::after_ms(1500));  // rank 1 is asked again, but the stopped rank is reported only once
  assert_int_equal(first.listener.calls(), 1);
}

// Rank 1 leads the host of ranks 2 and 3, and is stopped after a heartbeat. Rank 2 is stopped too. Rank 3
// runs but makes no call. Only the leader had to send heartbeats, but rank 0 reports both stopped ranks.
void a_host_whose_ranks_are_stopped_is_told(void**) {
  constexpr int64_t kLimitMs = 3000;
  const std::vector<std::vector<int32_t>> hosts = {{0}, {1, 2, 3}};
  const auto nobody = [] { return std::vector<RankGone>{}; };
  JobRank first(0, 4, 0, kLimitMs, kJobLogBytes, nobody, hosts);
  JobRank last(3, 4, first.port(), kLimitMs, kJobLogBytes, nobody, hosts);
  first.job->store().add("control/beat/1", 1, soon());
  const int64_t start = now_ns();
  for (const int32_t rank : {1, 2})
    assert_int_equal(last.listener.await_gone(rank).code, DSC_ERR_PEER_STALLED);
  const int64_t told_ms = (now_ns() - start) / kNsPerMs;
  assert_true(told_ms >= kLimitMs && told_ms < 2 * kLimitMs + kAtOnceNs / kNsPerMs);
  sleep_until(Deadline::after_ms(kLimitMs + 1500));
  assert_int_equal(first.listener.await_gone(3, 0).code, DSC_OK);
}

// The stopped ranks are announced before the failure that they caused. So a rank that leaves because of the
// failure knows which of its other groups fail too.
void a_failure_is_told_after_the_stopped_ranks_that_caused_it(void**) {
  const int rounds = test_repetitions(50, 5);
  for (int i = 0; i < rounds; ++i) {
    auto ranks = make_job(3);
    ranks[1]->control->publish(7, cause_of("stopped"), {kStopped});
    ranks[0]->control->catch_up(soon());
    assert_int_equal(ranks[0]->listener.await_gone(2, 0).code, DSC_ERR_PEER_STALLED);
    assert_string_equal(ranks[0]->listener.await_failure(0, 0).c_str(), "stopped");
  }
}

// Rank 0 ignores announcements that a rank has ended. But a stopped rank will not arrive, so it must still be
// reported.
void whoever_ignores_ends_still_hears_who_is_stopped(void**) {
  auto ranks = make_job(4);
  ranks[0]->control->ignore_ends();
  ranks[3].reset();
  assert_int_equal(ranks[1]->listener.await_gone(3).code, DSC_ERR_PEER_DEAD);
  ranks[1]->control->publish(7, cause_of("stopped"), {kStopped});
  assert_string_equal(ranks[0]->listener.await_failure().c_str(), "stopped");
  assert_int_equal(ranks[0]->listener.await_gone(2, 0).code, DSC_ERR_PEER_STALLED);
  assert_int_equal(ranks[0]->listener.calls(), 2);
}

void ranks_say_what_they_did_last(void**) {
  auto ranks = make_job(4);
  ranks[3]->control->leave();
  assert_int_equal(ranks[0]->listener.await_gone(3).code, DSC_ERR_PEER_LEFT);
  const auto answers = ranks[0]->control->ask(12, {2, 3, 0, 17}, "", soon());
  const std::vector<std::string> expected = {"step 12", "no answer", "step 12", "no answer"};
  assert_true(answers == expected);
  const std::vector<std::string> about = {"which 12"};
  assert_true(ranks[0]->control->ask(12, {1}, "which", soon()) == about);
}

// A log of several keys: no event is lost or reported twice, and the announcement of a death goes to the
// current key.
void a_long_log_goes_on_in_the_next_key(void**) {
  constexpr size_t kBytes = 3000;
  std::vector<std::unique_ptr<JobRank>> ranks;
  for (int32_t rank = 0; rank < 4; ++rank)
    ranks.push_back(
        std::make_unique<JobRank>(rank, 4, rank == 0 ? uint16_t{0} : ranks[0]->port(), 0, kBytes));
  constexpr uint64_t kGroups = 40;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i)
    threads.emplace_back([&, i] {
      for (uint64_t group = 0; group < kGroups; ++group)
        ranks[i]->control->publish(i * kGroups + group, cause_of("cause"));
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& rank : ranks)
    assert_string_equal(rank->listener.await_failure(4 * kGroups - 1).c_str(), "cause");
  ranks[3].reset();
  assert_int_equal(ranks[1]->listener.await_gone(3).code, DSC_ERR_PEER_DEAD);
  assert_int_equal(ranks[1]->listener.calls(), 4 * kGroups + 1);
}

size_t entries_of(const char* folder) {
  size_t count = 0;
  DIR* const dir = ::opendir(folder);
  assert_non_null(dir);
  while (::readdir(dir)) ++count;
  ::closedir(dir);
  return count;
}

void nothing_stays_behind(void**) {
  const JobRank first(0, 2, 0);
  const auto once = [&](int i) {
    JobRank second(1, 2, first.port());
    if (i % 2 == 0) second.control->leave();
  };
  const auto settled = [](size_t most) {  // the server sees the closed connections a little later
    for (const Deadline deadline = soon(); entries_of("/proc/self/fd") > most && !deadline.passed();)
      sleep_until(Deadline::after_ms(1));
    return entries_of("/proc/self/fd");
  };
  const size_t fds = entries_of("/proc/self/fd");
  const size_t threads = entries_of("/proc/self/task");
  const int rounds = test_repetitions(200, 20);
  for (int i = 0; i < rounds; ++i) once(i);
  assert_int_equal(entries_of("/proc/self/task"), threads);
  assert_int_equal(settled(fds), fds);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "serve") == 0) return ServingProcess::serve();
  const CMUnitTest tests[] = {
      cmocka_unit_test(causes_travel_whole),
      cmocka_unit_test(cut_and_changed_records_are_refused),
      cmocka_unit_test(the_first_cause_holds_everywhere),
      cmocka_unit_test(who_leaves_is_not_dead),
      cmocka_unit_test(who_leaves_a_group_says_so),
      cmocka_unit_test(rank_0_that_leaves_is_not_dead),
      cmocka_unit_test(rank_0_does_not_wait_for_long),
      cmocka_unit_test(rank_0_does_not_wait_beyond_its_deadline),
      cmocka_unit_test(who_is_stopped_is_told_by_the_ranks_of_its_host),
      cmocka_unit_test(a_host_whose_ranks_are_stopped_is_told),
      cmocka_unit_test(a_failure_is_told_after_the_stopped_ranks_that_caused_it),
      cmocka_unit_test(whoever_ignores_ends_still_hears_who_is_stopped),
      cmocka_unit_test(without_a_store_causes_are_kept),
      cmocka_unit_test(a_cause_is_told_once_the_store_answers_again),
      cmocka_unit_test(a_death_at_the_change_of_keys_is_told),
      cmocka_unit_test(who_ends_without_a_word_is_dead),
      cmocka_unit_test(after_leave_nothing_is_heard),
      cmocka_unit_test(ranks_say_what_they_did_last),
      cmocka_unit_test(a_long_log_goes_on_in_the_next_key),
      cmocka_unit_test(nothing_stays_behind),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
