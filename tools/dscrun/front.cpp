#include "dscrun/front.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstring>
#include <exception>
#include <iostream>
#include <string>
#include <utility>

#include "dscrun/children.hpp"
#include "dscrun/supervisor.hpp"
#include "dscrun/unique_fd.hpp"

namespace dscrun {
namespace {

constexpr std::array kForwarded = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};
constexpr int kCleanUpLimitMs = 5000;

bool is_ignored(int number) {
  struct sigaction action {};
  return sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

// Signals that the user has ignored (nohup, shell background) stay ignored.
sigset_t block_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (const int number : kForwarded) {
    if (!is_ignored(number)) sigaddset(&set, number);
  }
  signal(SIGCHLD, SIG_DFL);  // with an inherited SIG_IGN, the kernel would reap the children
  sigprocmask(SIG_SETMASK, &set, nullptr);
  return set;
}

// Returns the process group that rank 0 joins so that it can read from the terminal. Returns 0 if it cannot
// read from a terminal.
pid_t terminal_group() {
  const bool in_foreground = isatty(STDIN_FILENO) == 1 && tcgetpgrp(STDIN_FILENO) == getpgrp();
  return in_foreground ? getpgrp() : 0;
}

// Returns false if a signal asks for the end of the job, or if the front process, which passes signals on, is
// gone.
bool wait_until(Supervisor::Clock::time_point time, int control) {
  constexpr std::array kEnding = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
  for (;;) {
    const auto left = std::chrono::ceil<Millis>(time - Supervisor::Clock::now()).count();
    pollfd order = {control, POLLIN, 0};
    if (left <= 0) return true;
    if (poll(&order, 1, static_cast<int>(std::min<int64_t>(left, INT_MAX))) <= 0) continue;
    ControlMessage message;
    const ssize_t bytes = read(control, &message, sizeof message);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes != static_cast<ssize_t>(sizeof message)) return false;
    if (std::find(kEnding.begin(), kEnding.end(), message.signal) != kEnding.end()) return false;
  }
}

// Waits until ranks behind a lost connection have surely ended, before the job is started again. Returns
// false if it must not be started again.
bool outlive_the_lost(const Outcome& outcome, Supervisor::Clock::time_point time_limit, int control) {
  const auto left = std::chrono::ceil<std::chrono::seconds>(outcome.lost_end - Supervisor::Clock::now());
  if (left.count() <= 0) return true;
  const std::string text =
      "ranks on a host whose connection was lost may still run for " + std::to_string(left.count()) + " s";
  if (outcome.lost_end >= time_limit) {
    std::cerr << "dscrun: no restart: " << text << ", and the time limit ends before that\n";
    return false;
  }
  std::cerr << "dscrun: waiting before the restart: " << text << "\n";
  return wait_until(outcome.lost_end, control);
}

// Starts the job. After a failure, starts it again as often as the user allows.
int run_job(const Options& options, const WorkOfStart& work_of_start, int control, pid_t front_group) {
  auto time_limit = Supervisor::Clock::time_point::max();
  if (options.timeout) time_limit = Supervisor::Clock::now() + *options.timeout;
  for (int count = 0;; ++count) {
    if (count > 0)
      std::cerr << "dscrun: restart " << count << " of " << options.restarts << ": all ranks start again\n";
    const Outcome outcome = Supervisor(options, work_of_start(count), control, front_group, time_limit).run();
    if (!outcome.may_restart || count == options.restarts) return outcome.exit_code;
    if (!outlive_the_lost(outcome, time_limit, control)) return outcome.exit_code;
  }
}

int run_keeper(const Options& options, const WorkOfStart& work_of_start, const UniqueFd& control,
               pid_t front_group) try {
  setpgid(0, 0);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  prctl(PR_SET_NAME, "dsckeeper");  // so that `killall dscrun` kills only the front process
  signal(SIGPIPE, SIG_IGN);         // write() reports that a reader is gone
  signal(SIGTTOU, SIG_IGN);         // this process writes to the terminal from the background
  return run_job(options, work_of_start, control.get(), front_group);
} catch (const std::exception& error) {
  std::cerr << "dscrun: " << error.what() << "\n";
  return kOwnFailure;
}

void pass_on(const siginfo_t& info, int control) {
  const ControlMessage message = {info.si_signo, info.si_code == SI_KERNEL};
  // The pipe holds hundreds of messages. If a keeper that does not read has filled it, losing one more
  // message changes nothing.
  if (write(control, &message, sizeof message) < 0) return;
  if (info.si_signo == SIGTSTP) raise(SIGSTOP);
}

// Returns true if the keeper has ended.
bool reap(pid_t keeper, int& wait_status) {
  int status = 0;
  pid_t pid = 0;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
    if (pid == keeper) return wait_status = status, true;
  }
  return false;
}

int finish(int wait_status) {
  if (WIFEXITED(wait_status)) return WEXITSTATUS(wait_status);
  std::cerr << "dscrun: the supervising process " << describe_end(wait_status) << "; ending all ranks\n";
  if (!kill_descendants(kCleanUpLimitMs))
    std::cerr << "dscrun: some processes of the job could not be killed\n";
  return shell_code(wait_status);
}

}  // namespace

int run_front(const Options& options, const WorkOfStart& work_of_start) {
  const sigset_t signals = block_signals();
  signal(SIGPIPE, SIG_IGN);
  const pid_t front_group = terminal_group();
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
    std::cerr << "dscrun: cannot set up the supervision of ranks: " << strerror(errno) << "\n";
    return kOwnFailure;
  }
  UniqueFd read_end(fds[0]), write_end(fds[1]);
  fcntl(write_end.get(), F_SETFL, O_NONBLOCK);
  const pid_t keeper = fork();
  if (keeper < 0) {
    std::cerr << "dscrun: cannot start the supervising process: " << strerror(errno) << "\n";
    return kOwnFailure;
  }
  if (keeper == 0) {
    write_end.reset();
    _exit(run_keeper(options, work_of_start, read_end, front_group));
  }
  read_end.reset();
  int wait_status = 0;
  siginfo_t info;
  while (!reap(keeper, wait_status)) {
    if (sigwaitinfo(&signals, &info) > 0 && info.si_signo != SIGCHLD) pass_on(info, write_end.get());
  }
  return finish(wait_status);
}

}  // namespace dscrun
