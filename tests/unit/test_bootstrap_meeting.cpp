// The meeting of the ranks of one host: which ranks meet, and what every rank is told when the meeting fails.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <setjmp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>

#include "base/log_listeners.hpp"
#include "bootstrap/meeting_wire.hpp"
#include "bootstrap/unix_socket.hpp"
#include "bootstrap_support.hpp"
#include "repetitions.h"
#include "stopped.hpp"

// Included last because it defines macros such as fail().
extern "C" {
#include <cmocka.h>
}

namespace {

using namespace dsc;
using namespace dsc::test;

const pid_t test_pid = ::getpid();  // read before any fork

constexpr int64_t kTimeForAllMs = 3000;  // long enough even if the machine does not run a rank for a while

// Every test has its own job id, so that tests that run at the same time never meet.
MeetingSettings settings_of(const char* test, int32_t rank, int32_t world_size, int64_t timeout_ms = 20'000) {
  MeetingSettings settings;
  settings.master_addr = "127.0.0.1";
  settings.master_port = 29500;
  settings.job_id = std::string(test) + "." + std::to_string(test_pid);
  settings.rank = rank;
  settings.world_size = world_size;
  settings.library_version = 100;
  settings.host = "host";
  settings.endpoint = "endpoint-" + std::to_string(rank);
  settings.config = "timeout_ms=1000;backend=host";
  settings.deadline = Deadline::after_ms(timeout_ms);
  return settings;
}

// Changes the settings of rank i for a test.
using Change = std::function<void(size_t, MeetingSettings&)>;

struct Job {
  const char* test;
  int32_t world_size;
  size_t starts;  // how many ranks start, numbered from 0
  int64_t timeout_ms = 20'000;
  Change change = nullptr;

  MeetingSettings settings(size_t i) const {
    MeetingSettings settings = settings_of(test, static_cast<int32_t>(i), world_size, timeout_ms);
    if (change) change(i, settings);
    return settings;
  }
};

// Runs every rank in a thread of this process. The results keep the meeting's name reserved until all threads
// have ended.
void run_threads(const Job& job, Reports& reports) {
  std::vector<MeetingResult> results(job.starts);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < job.starts; ++i)
    threads.emplace_back([&, i] { results[i] = meet_and_report(job.settings(i), reports[i]); });
  for (std::thread& thread : threads) thread.join();
}

// Runs every rank in a forked process. Returns how many of the processes failed.
int run_processes(const Job& job, Reports& reports) {
  Children children;
  for (size_t i = 0; i < job.starts; ++i)
    children.start([&, i] {
      meet_and_report(job.settings(i), reports[i]);
      return 0;
    });
  return children.wait_all(job.timeout_ms + kAtOnceMs);
}

void assert_same_world(Reports& reports, int32_t size) {
  int hosts = 0;
  for (size_t i = 0; i < static_cast<size_t>(size); ++i) {
    assert_string_equal(reports[i].text, "");
    assert_int_equal(reports[i].code, DSC_OK);
    assert_int_equal(reports[i].size, size);
    assert_memory_equal(reports[i].nonce.data(), reports[0].nonce.data(), sizeof(Nonce));
    assert_memory_equal(reports[i].pids, reports[0].pids, sizeof reports[0].pids);
    assert_int_equal(reports[0].local_ranks[i], i);
    assert_string_equal(reports[i].endpoints[i], ("endpoint-" + std::to_string(i)).c_str());
    hosts += reports[i].hosted;
  }
  assert_int_equal(hosts, size > 1);
}

void assert_error(RankReport& report, dsc_result_t code, std::initializer_list<const char*> words) {
  if (report.code != code) print_error("expected %d, came %d: %s\n", code, report.code, report.text);
  assert_int_equal(report.code, code);
  for (const char* word : words) {
    if (std::strstr(report.text, word) == nullptr) print_error("no '%s' in: %s\n", word, report.text);
    assert_non_null(std::strstr(report.text, word));
  }
}

void assert_errors(Reports& reports, size_t count, dsc_result_t code,
                   std::initializer_list<const char*> words) {
  for (size_t i = 0; i < count; ++i) assert_error(reports[i], code, words);
}

void test_processes_meet(void**) {
  for (const int32_t size : {1, 2, 4, 8}) {
    Reports reports;
    assert_int_equal(run_processes({"processes", size, static_cast<size_t>(size)}, reports), 0);
    assert_same_world(reports, size);
    for (int32_t i = 1; i < size; ++i) assert_int_not_equal(reports[0].pids[i], reports[0].pids[0]);
  }
}

void test_threads_meet(void**) {
  for (const int32_t size : {1, 2, 4, 8}) {
    Reports reports;
    run_threads({"threads", size, static_cast<size_t>(size)}, reports);
    assert_same_world(reports, size);
    for (int32_t i = 0; i < size; ++i) assert_int_equal(reports[0].pids[i], test_pid);
  }
}

void test_local_ranks_are_kept_where_given(void**) {
  Reports reports;
  run_threads({"local", 3, 3, 20'000,
               [](size_t i, MeetingSettings& settings) { settings.local_rank = i == 1 ? 7 : -1; }},
              reports);
  assert_int_equal(reports[2].code, DSC_OK);
  assert_int_equal(reports[2].local_ranks[0], 0);
  assert_int_equal(reports[2].local_ranks[1], 7);
  assert_int_equal(reports[2].local_ranks[2], 2);
}

void test_missing_rank_is_named(void**) {
  Reports reports;
  assert_int_equal(run_processes({"missing", 4, 3, kTimeForAllMs,
                                  [](size_t i, MeetingSettings& settings) {
                                    if (i == 1) settings.rank = 3;
                                  }},
                                 reports),
                   0);
  assert_errors(reports, 3, DSC_ERR_TIMEOUT,
                {"only 3 of 4", "missing: rank 1;", "rank 0 (pid", "rank 3 (pid"});
  // The time-out of the first rank ends the meeting for all ranks.
  const int64_t longest_ms = std::max({reports[0].elapsed_ms, reports[1].elapsed_ms, reports[2].elapsed_ms});
  assert_in_range(longest_ms, kTimeForAllMs - 200, kTimeForAllMs + kAtOnceMs);
}

void test_log_names_who_is_missing(void**) {
  static std::atomic<int> lines;
  lines.store(0);
  const auto receive = [](const LogListener&, const LogRecord& record) {
    const std::string& text = record.text;
    if (text.find("start-up has waited") != text.npos && text.find("rank 1, 3-5 (world size 6)") != text.npos)
      ++lines;
  };
  set_log_listener({receive, nullptr, nullptr, DSC_LOG_LEVEL_WARN});
  Reports reports;
  run_threads({"progress", 6, 2, kTimeForAllMs,
               [](size_t i, MeetingSettings& settings) {
                 settings.rank = i == 0 ? 0 : 2;
                 settings.progress_ms = 200;
               }},
              reports);
  assert_true(eventually([] { return lines.load() >= 2; }));
  set_log_listener({});
}

void test_earliest_deadline_ends_the_meeting_for_all(void**) {
  Reports reports;
  run_threads({"deadline", 3, 2, 60'000,
               [](size_t i, MeetingSettings& settings) {
                 if (i == 1) settings.deadline = Deadline::after_ms(kTimeForAllMs);
               }},
              reports);
  assert_errors(reports, 2, DSC_ERR_TIMEOUT, {"missing: rank 2"});
}

void test_two_ranks_with_one_number(void**) {
  Reports reports;
  assert_int_equal(run_processes({"twice", 4, 4, 20'000,
                                  [](size_t i, MeetingSettings& settings) {
                                    if (i == 2) settings.rank = 1;
                                  }},
                                 reports),
                   0);
  assert_errors(reports, 4, DSC_ERR_CONFIG, {"two processes claim rank 1", "pid", "DSC_JOB_ID"});
  for (size_t i = 0; i < 4; ++i) assert_true(reports[i].elapsed_ms < kAtOnceMs);
}

void test_conflict_does_not_wait_for_a_missing_rank(void**) {
  Reports reports;
  run_threads({"grace", 4, 2, 60'000, [](size_t, MeetingSettings& settings) { settings.rank = 1; }}, reports);
  assert_errors(reports, 2, DSC_ERR_CONFIG, {"two processes claim rank 1"});
  for (size_t i = 0; i < 2; ++i) assert_in_range(reports[i].elapsed_ms, 1500, 2000 + kAtOnceMs);
}

void test_rank_outside_the_world(void**) {
  Reports reports;
  run_threads({"outside", 3, 3, 20'000,
               [](size_t i, MeetingSettings& settings) {
                 if (i == 2) settings.rank = 9;
               }},
              reports);
  assert_errors(reports, 3, DSC_ERR_CONFIG, {"rank 9", "expected 0 to 2"});
  for (size_t i = 0; i < 3; ++i) assert_true(reports[i].elapsed_ms < kAtOnceMs);
}

void test_world_sizes_differ(void**) {
  Reports reports;
  run_threads({"sizes", 4, 4, 20'000,
               [](size_t i, MeetingSettings& settings) {
                 if (i == 1) settings.world_size = 2;
               }},
              reports);
  assert_errors(reports, 4, DSC_ERR_CONFIG, {"world sizes differ", "2 (rank 1)", "4 (ranks 0, 2, 3)"});
}

void test_settings_differ(void**) {
  Reports reports;
  run_threads({"config", 3, 3, 20'000,
               [](size_t i, MeetingSettings& settings) {
                 if (i == 1) settings.config = "timeout_ms=2000;backend=host;extra=1";
               }},
              reports);
  assert_errors(
      reports, 3, DSC_ERR_CONFIG,
      {"settings differ", "timeout_ms: 1000 (ranks 0, 2), 2000 (rank 1)", "extra: 1 (rank 1), unset"});
  assert_null(std::strstr(reports[0].text, "backend"));
}

void test_settings_that_differ_past_the_message_are_seen(void**) {
  Reports reports;
  run_threads({"long", 2, 2, 20'000,
               [](size_t i, MeetingSettings& settings) {
                 settings.config = "a=" + std::string(1000, 'x') + ";b=" + std::to_string(i);
               }},
              reports);
  assert_errors(reports, 2, DSC_ERR_CONFIG, {"settings differ", "too long"});
}

void test_versions_differ(void**) {
  Reports reports;
  run_threads({"version", 2, 2, 20'000,
               [](size_t i, MeetingSettings& settings) {
                 if (i == 1) settings.library_version = 200;
               }},
              reports);
  assert_errors(reports, 2, DSC_ERR_VERSION,
                {"0.0.100 with wire version 2 (rank 0)", "0.0.200 with wire version 2 (rank 1)"});
}

void test_several_hosts_are_refused(void**) {
  Reports reports;
  run_threads({"hosts", 2, 2, 20'000,
               [](size_t i, MeetingSettings& settings) { settings.host = i == 0 ? "here" : "there"; }},
              reports);
  assert_errors(reports, 2, DSC_ERR_CONFIG,
                {"ranks of one host", "here (rank 0)", "there (rank 1)", "LOCAL_WORLD_SIZE"});
}

void test_impossible_worlds_fail_at_once(void**) {
  Reports reports;
  meet_and_report(settings_of("size0", 0, 0), reports[0]);
  assert_error(reports[0], DSC_ERR_CONFIG, {"world size is 0"});
  meet_and_report(settings_of("size1", 1, 1), reports[0]);
  assert_error(reports[0], DSC_ERR_CONFIG, {"rank 1", "expected 0"});
  meet_and_report(settings_of("huge", 0, 5000), reports[0]);
  assert_error(reports[0], DSC_ERR_UNSUPPORTED, {"5000", "1024"});
}

void test_two_jobs_at_once(void**) {
  Reports first, second;
  std::thread other([&] { run_threads({"job-b", 4, 4}, second); });
  run_threads({"job-a", 4, 4}, first);
  other.join();
  assert_same_world(first, 4);
  assert_same_world(second, 4);
  assert_memory_not_equal(first[0].nonce.data(), second[0].nonce.data(), sizeof(Nonce));
}

void test_check_can_give_up(void**) {
  Reports reports;
  run_threads({"check", 3, 2, 60'000,
               [](size_t, MeetingSettings& settings) {
                 settings.check = [] { throw Error(DSC_ERR_STATE, "stopped by the caller"); };
               }},
              reports);
  assert_errors(reports, 2, DSC_ERR_STATE, {"stopped by the caller"});
}

// Opens a connection that sends `bytes`, or nothing if `bytes` is empty.
UniqueFd stranger(const MeetingSettings& settings, const std::string& bytes) {
  int error = 0;
  UniqueFd fd;
  eventually([&] { return static_cast<bool>(fd = connect_abstract(meeting_name(settings), error)); });
  if (!bytes.empty()) send_message(fd.get(), bytes.data(), bytes.size());
  return fd;
}

void test_strangers_do_no_harm(void**) {
  const Job job{"strangers", 2, 2};
  Reports reports;
  Children children;
  const auto rank = [&](size_t i) {
    children.start([&, i] {
      meet_and_report(job.settings(i), reports[i]);
      return 0;
    });
  };
  rank(0);
  std::string nearly_a_hello(sizeof(HelloWire), 'x');
  std::memcpy(nearly_a_hello.data(), &kMeetingMagic, sizeof kMeetingMagic);
  std::vector<UniqueFd> strangers;
  for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100'000, 'x'),
                                   nearly_a_hello.substr(0, 12), std::string(sizeof(HelloWire), 'x')})
    strangers.push_back(stranger(job.settings(0), bytes));
  for (int silent = 0; silent < 200; ++silent) strangers.push_back(stranger(job.settings(0), ""));
  rank(1);
  assert_int_equal(children.wait_all(25'000), 0);
  assert_same_world(reports, 2);
  assert_true(reports[1].elapsed_ms < kAtOnceMs);
}

void test_foreign_service_at_the_name(void**) {
  const MeetingSettings settings = settings_of("foreign", 0, 2);
  const UniqueFd listener = listen_abstract(meeting_name(settings), 8);
  Reports reports;
  std::thread rank([&] { meet_and_report(settings, reports[0]); });
  int error = EAGAIN;
  UniqueFd connection;
  eventually([&] { return static_cast<bool>(connection = accept_connection(listener.get(), error)); });
  send_message(connection.get(), "HTTP", 4);
  rank.join();
  assert_error(reports[0], DSC_ERR_PROTOCOL, {"not libdsc", "48 54 54 50"});
}

void test_name_held_by_another_user(void**) {
  if (::geteuid() != 0) skip();  // only root can become another user
  const MeetingSettings settings = settings_of("user", 0, 2);
  const std::string name = meeting_name(settings);
  Reports reports;
  Children children;
  const pid_t other = children.start([&] {
    if (::setuid(65534) != 0) return 1;
    const UniqueFd listener = listen_abstract(name, 8);
    reports[1].came.store(1);
    ::pause();
    return 0;
  });
  assert_true(eventually([&] { return reports[1].came.load() == 1; }));
  meet_and_report(settings, reports[0]);
  assert_error(reports[0], DSC_ERR_ADDR_IN_USE, {"user 65534", std::to_string(other).c_str()});
  assert_true(reports[0].elapsed_ms < kAtOnceMs);
}

// Starts rank 0 and waits until it hosts the meeting.
pid_t start_host(Children& children, const Job& job, Reports& reports) {
  const pid_t pid = children.start([&] {
    meet_and_report(job.settings(0), reports[0]);
    return 0;
  });
  stranger(job.settings(0), "");
  return pid;
}

void start_rank(Children& children, const Job& job, Reports& reports, size_t i) {
  children.start([&, i] {
    meet_and_report(job.settings(i), reports[i]);
    return 0;
  });
}

void test_host_dies_and_its_successor_completes_the_world(void**) {
  const Job job{"successor", 4, 4};
  Reports reports;
  Children children;
  const pid_t host = start_host(children, job, reports);
  start_rank(children, job, reports, 1);
  start_rank(children, job, reports, 2);
  ::usleep(100'000);  // gives the other ranks time to join
  children.kill_now(host);
  start_rank(children, job, reports, 3);
  start_rank(children, job, reports, 0);
  assert_int_equal(children.wait_all(25'000), 0);
  assert_same_world(reports, 4);
}

void test_host_dies_and_the_others_name_it(void**) {
  const Job job{"orphans", 3, 3, 1200};
  Reports reports;
  Children children;
  const pid_t host = start_host(children, job, reports);
  start_rank(children, job, reports, 1);
  ::usleep(100'000);
  children.kill_now(host);
  start_rank(children, job, reports, 2);
  assert_int_equal(children.wait_all(25'000), 0);
  for (size_t i = 1; i < 3; ++i) {
    assert_error(reports[i], DSC_ERR_TIMEOUT, {"missing: rank 0"});
    assert_true(reports[i].elapsed_ms < 1200 + kAtOnceMs);
  }
}

void test_follower_dies_and_is_replaced(void**) {
  const Job job{"replaced", 3, 3};
  Reports reports;
  Children children;
  start_host(children, job, reports);
  const pid_t follower = children.start([&] {
    meet_and_report(job.settings(1), reports[3]);
    return 0;
  });
  ::usleep(100'000);
  children.kill_now(follower);
  start_rank(children, job, reports, 1);
  start_rank(children, job, reports, 2);
  assert_int_equal(children.wait_all(25'000), 0);
  assert_same_world(reports, 3);
}

void test_follower_that_went_away_is_reported(void**) {
  const Job job{"left", 3, 3, kTimeForAllMs};
  Reports reports;
  Children children;
  start_host(children, job, reports);
  const pid_t follower = children.start([&] {
    meet_and_report(job.settings(1), reports[3]);
    return 0;
  });
  ::usleep(1'500'000);  // long enough for the rank to arrive
  children.kill_now(follower);
  assert_int_equal(children.wait_all(25'000), 0);
  assert_error(reports[0], DSC_ERR_TIMEOUT,
               {"missing: rank 1, 2", "arrived and left: rank 1", std::to_string(follower).c_str()});
}

void test_stopped_host_is_named(void**) {
  const Job job{"stopped", 3, 3, kTimeForAllMs};
  Reports reports;
  Children children;
  const pid_t host = start_host(children, job, reports);
  dsc::test::stop_process(host);
  meet_and_report(job.settings(1), reports[1]);
  assert_error(reports[1], DSC_ERR_TIMEOUT, {"sent no result", std::to_string(host).c_str()});
  assert_in_range(reports[1].elapsed_ms, kTimeForAllMs + 900, kTimeForAllMs + 1000 + kAtOnceMs);
}

void test_late_comer_is_told_who_holds_the_name(void**) {
  Reports reports;
  std::vector<MeetingResult> results(2);
  std::thread other([&] { results[1] = meet_and_report(settings_of("late", 1, 2), reports[1]); });
  results[0] = meet_and_report(settings_of("late", 0, 2), reports[0]);
  other.join();
  MeetingResult& host = results[0].listener ? results[0] : results[1];
  assert_true(static_cast<bool>(host.listener));
  std::thread late([&] { meet_and_report(settings_of("late", 0, 2), reports[2]); });
  while (reports[2].came.load() == 0)
    if (wait_ready(host.listener.get(), POLLIN, Deadline::after_ms(20)))
      answer_late_comer(host.listener.get(), host.held);
  late.join();
  assert_error(reports[2], DSC_ERR_ADDR_IN_USE,
               {"a job of 2 ranks", std::to_string(test_pid).c_str(), hex(host.nonce).c_str(), "DSC_JOB_ID"});
  assert_true(reports[2].elapsed_ms < kAtOnceMs);
}

// The ranks cannot see each other. Each error names the rank's user, which explains the failure.
void test_ranks_of_different_users(void**) {
  if (::geteuid() != 0) skip();  // only root can become another user
  Reports reports;
  const Change change = [](size_t i, MeetingSettings&) {
    if (i == 1 && ::setuid(65534) != 0) ::_exit(1);
  };
  assert_int_equal(run_processes({"two users", 2, 2, 500, change}, reports), 0);
  assert_error(reports[0], DSC_ERR_TIMEOUT,
               {"missing: rank 1", "only processes of user id 0, as this one, can join this world"});
  assert_error(reports[1], DSC_ERR_TIMEOUT,
               {"missing: rank 0", "only processes of user id 65534, as this one"});
}

// Makes accept4() fail from now on, as a container's system call filter may.
void refuse_accept4() {
  sock_filter steps[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                         BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_accept4, 0, 1),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{std::size(steps), steps};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    ::_exit(1);
}

// The other ranks do connect and are not missing, so the host must report why it cannot accept them.
void test_refused_accept_is_named(void**) {
  Reports reports;
  const Change change = [](size_t, MeetingSettings&) { refuse_accept4(); };
  assert_int_equal(run_processes({"refused accept", 2, 2, 500, change}, reports), 0);
  RankReport& host = reports[0].code == DSC_ERR_SYSTEM ? reports[0] : reports[1];
  assert_error(host, DSC_ERR_SYSTEM,
               {"only 1 of 2 ranks arrived",
                "other processes connect, but their connections cannot be accepted on rank ",
                "Operation not permitted"});
}

void test_early_comer_waits_while_the_old_world_ends(void**) {
  Reports reports;
  std::vector<MeetingResult> old(2), fresh(2);
  const auto meet_pair = [&](std::vector<MeetingResult>& results, size_t first_report) {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < 2; ++i)
      threads.emplace_back([&, i, first_report] {
        results[i] =
            meet_and_report(settings_of("again", static_cast<int32_t>(i), 2), reports[first_report + i]);
      });
    return threads;
  };
  for (std::thread& thread : meet_pair(old, 0)) thread.join();
  MeetingResult& host = old[0].listener ? old[0] : old[1];
  host.held.closing = true;
  auto threads = meet_pair(fresh, 2);
  const Deadline end = Deadline::after_ms(200);
  while (!end.passed())
    if (wait_ready(host.listener.get(), POLLIN, end)) answer_late_comer(host.listener.get(), host.held);
  const bool waited = reports[2].came.load() == 0 && reports[3].came.load() == 0;
  host.listener.reset();
  for (std::thread& thread : threads) thread.join();
  assert_true(waited);
  assert_int_equal(reports[2].code, DSC_OK);
  assert_int_equal(reports[3].code, DSC_OK);
  assert_memory_not_equal(reports[2].nonce.data(), reports[0].nonce.data(), sizeof(Nonce));
}

void test_many_meetings_leave_nothing(void**) {
  int before = 0;
  const int rounds = test_repetitions(100, 10);
  for (int round = 0; round < rounds; ++round) {
    Reports reports;
    run_threads({"many", 3, 3}, reports);
    assert_same_world(reports, 3);
    if (round == 0) before = open_descriptors();
  }
  assert_int_equal(open_descriptors(), before);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_processes_meet),
      cmocka_unit_test(test_threads_meet),
      cmocka_unit_test(test_local_ranks_are_kept_where_given),
      cmocka_unit_test(test_missing_rank_is_named),
      cmocka_unit_test(test_earliest_deadline_ends_the_meeting_for_all),
      cmocka_unit_test(test_two_ranks_with_one_number),
      cmocka_unit_test(test_conflict_does_not_wait_for_a_missing_rank),
      cmocka_unit_test(test_rank_outside_the_world),
      cmocka_unit_test(test_world_sizes_differ),
      cmocka_unit_test(test_settings_differ),
      cmocka_unit_test(test_settings_that_differ_past_the_message_are_seen),
      cmocka_unit_test(test_versions_differ),
      cmocka_unit_test(test_several_hosts_are_refused),
      cmocka_unit_test(test_impossible_worlds_fail_at_once),
      cmocka_unit_test(test_two_jobs_at_once),
      cmocka_unit_test(test_check_can_give_up),
      cmocka_unit_test(test_strangers_do_no_harm),
      cmocka_unit_test(test_foreign_service_at_the_name),
      cmocka_unit_test(test_name_held_by_another_user),
      cmocka_unit_test(test_host_dies_and_its_successor_completes_the_world),
      cmocka_unit_test(test_host_dies_and_the_others_name_it),
      cmocka_unit_test(test_follower_dies_and_is_replaced),
      cmocka_unit_test(test_follower_that_went_away_is_reported),
      cmocka_unit_test(test_stopped_host_is_named),
      cmocka_unit_test(test_late_comer_is_told_who_holds_the_name),
      cmocka_unit_test(test_ranks_of_different_users),
      cmocka_unit_test(test_refused_accept_is_named),
      cmocka_unit_test(test_early_comer_waits_while_the_old_world_ends),
      cmocka_unit_test(test_many_meetings_leave_nothing),
      cmocka_unit_test(test_log_names_who_is_missing),  // runs last because it starts the log's thread
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
