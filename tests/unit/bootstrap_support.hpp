// Runs ranks as forked processes and as threads, for the tests of start-up. Nothing here asserts: children
// report by their exit status and through shared memory, and the parent checks their reports.
#pragma once

#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "bootstrap/meeting.hpp"

namespace dsc::test {

inline constexpr int kMaxRanksInTest = 16;
inline constexpr int64_t kAtOnceMs =
    10'000;  // The limit for "immediately" on a busy machine. Waiting for a time-out takes longer.

// What meet() gave to one rank.
struct RankReport {
  std::atomic<int32_t> came;  // 1 after meet() returned or threw
  int32_t code;
  char text[sizeof(Failure::text)];
  Nonce nonce;
  int32_t size;
  int32_t hosted;
  int64_t elapsed_ms;
  int64_t pids[kMaxRanksInTest];
  int32_t local_ranks[kMaxRanksInTest];
  char endpoints[kMaxRanksInTest][64];
};

// Reports in memory that the parent shares with its forked children.
class Reports {
 public:
  Reports() {
    void* memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::perror("mmap");
    reports_ = static_cast<RankReport*>(memory);
  }
  ~Reports() { ::munmap(reports_, kBytes); }
  Reports(const Reports&) = delete;
  Reports& operator=(const Reports&) = delete;
  RankReport& operator[](size_t i) { return reports_[i]; }

 private:
  static constexpr size_t kBytes = kMaxRanksInTest * sizeof(RankReport);
  RankReport* reports_;
};

// Calls meet() and stores its outcome in the report.
inline MeetingResult meet_and_report(const MeetingSettings& settings, RankReport& report) {
  MeetingResult result;
  const int64_t start_ns = now_ns();
  try {
    result = meet(settings);
    report.code = DSC_OK;
    report.nonce = result.nonce;
    report.size = static_cast<int32_t>(result.members.size());
    report.hosted = result.listener ? 1 : 0;
    for (size_t i = 0; i < result.members.size() && i < kMaxRanksInTest; ++i) {
      report.pids[i] = result.members[i].pid;
      report.local_ranks[i] = result.members[i].local_rank;
      std::snprintf(report.endpoints[i], sizeof report.endpoints[i], "%s",
                    result.members[i].endpoint.c_str());
    }
  } catch (const Error& error) {
    report.code = error.code();
    std::snprintf(report.text, sizeof report.text, "%s", error.what());
  }
  report.elapsed_ms = (now_ns() - start_ns) / kNsPerMs;
  report.came.store(1);
  return result;
}

// Forked children. The destructor kills those that still run.
class Children {
 public:
  ~Children() {
    for (const pid_t pid : pids_) ::kill(pid, SIGKILL);
    for (const pid_t pid : pids_) ::waitpid(pid, nullptr, 0);
  }

  // The child's exit status is what `body` returns.
  pid_t start(const std::function<int()>& body) {
    std::fflush(nullptr);
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::alarm(90);
      ::_exit(body());
    }
    pids_.push_back(pid);
    return pid;
  }

  void kill_now(pid_t pid) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    std::erase(pids_, pid);
  }

  // Returns how many children exited with a status other than 0 or did not exit within limit_ms.
  int wait_all(int64_t limit_ms) {
    int bad = 0;
    const Deadline deadline = Deadline::after_ms(limit_ms);
    while (!pids_.empty() && !deadline.passed()) {
      std::erase_if(pids_, [&](pid_t pid) {
        int status = 0;
        if (::waitpid(pid, &status, WNOHANG) != pid) return false;
        bad += status != 0;
        return true;
      });
      ::usleep(1000);
    }
    return bad + static_cast<int>(pids_.size());
  }

 private:
  std::vector<pid_t> pids_;
};

// Waits until `condition` holds. Returns false if it does not hold within limit_ms.
inline bool eventually(const std::function<bool()>& condition, int64_t limit_ms = 20'000) {
  const Deadline deadline = Deadline::after_ms(limit_ms);
  while (!condition()) {
    if (deadline.passed()) return false;
    ::usleep(1000);
  }
  return true;
}

inline int open_descriptors() {
  int count = 0;
  DIR* folder = ::opendir("/proc/self/fd");
  while (folder != nullptr && ::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

}  // namespace dsc::test
