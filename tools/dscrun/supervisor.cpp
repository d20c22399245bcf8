#include "dscrun/supervisor.hpp"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "dscrun/children.hpp"

namespace dscrun {
namespace {

constexpr auto kKillPatience =
    std::chrono::seconds(5);  // a killed process ends at once unless a device holds it

std::string format_seconds(std::chrono::steady_clock::duration duration) {
  char text[32];
  const double seconds = std::chrono::duration<double>(duration).count();
  if (seconds < 0.1) {
    std::snprintf(text, sizeof text, "%.1f ms", seconds * 1e3);
  } else {
    std::snprintf(text, sizeof text, "%.1f s", seconds);
  }
  return text;
}

std::string format_limit(Millis limit) {
  char text[32];
  std::snprintf(text, sizeof text, "%.10g s", std::chrono::duration<double>(limit).count());
  return text;
}

UniqueFd watch_children() {
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child, nullptr);
  return UniqueFd(signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
}

}  // namespace

Supervisor::Supervisor(const Options& options, UniqueFd control, pid_t front_group)
    : options_(options),
      control_(std::move(control)),
      child_signals_(watch_children()),
      ended_ranks_(epoll_create1(EPOLL_CLOEXEC)),
      output_(options.prefix, !options.prefix && options.ranks == 1) {
  if (options.timeout) time_limit_ = start_ + *options.timeout;
  start_ranks(front_group);
}

void Supervisor::start_ranks(pid_t front_group) try {
  const RankStarter starter(options_, front_group);
  for (int number = 0; number < options_.ranks; ++number) {
    Rank rank = starter.start(number);
    epoll_event event = {.events = EPOLLIN, .data = {.u32 = static_cast<uint32_t>(number)}};
    if (epoll_ctl(ended_ranks_.get(), EPOLL_CTL_ADD, rank.pidfd.get(), &event) != 0) {
      throw StartError(std::string("cannot watch a rank: ") + strerror(errno), kOwnFailure);
    }
    output_.add_rank(number, std::move(rank.out), std::move(rank.err));
    ranks_.push_back(std::move(rank));
  }
} catch (const StartError& error) {
  output_.say(error.what());
  start_error_ = error.exit_code;
  enter(Stage::kKilling);
}

int Supervisor::run() {
  while (!finished()) wait_for_events();
  output_.drain();
  report();
  // The reader of our output may take its time, but not more than a run with a time limit has.
  stage_ = Stage::kDone;
  stage_end_ = timed_out_ ? Clock::now() + options_.grace : Clock::time_point::max();
  while (output_.pending() && !front_gone_) wait_for_events();
  return exit_code();
}

void Supervisor::wait_for_events() {
  std::vector<pollfd> polls = {
      {control_.get(), POLLIN, 0}, {child_signals_.get(), POLLIN, 0}, {ended_ranks_.get(), POLLIN, 0}};
  const size_t own = polls.size();
  output_.append_polls(polls);
  if (poll(polls.data(), polls.size(), poll_timeout_ms()) < 0) return;  // only EINTR can happen here
  output_.handle(polls.data() + own, polls.size() - own);
  if (polls[2].revents != 0) handle_ended_ranks();
  reap_orphans(polls[1].revents != 0);
  if (polls[0].revents != 0) handle_control();
  handle_deadlines();
}

int Supervisor::poll_timeout_ms() const {
  const auto next = std::min(stage_end_, time_limit_);
  if (next == Clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<Millis>(next - Clock::now()).count();
  return static_cast<int>(std::clamp<long>(left, 0, 1'000'000));
}

void Supervisor::handle_control() {
  ControlMessage message;
  const ssize_t bytes = read(control_.get(), &message, sizeof message);
  if (bytes == static_cast<ssize_t>(sizeof message)) return on_signal(message);
  if (bytes < 0 && errno == EINTR) return;
  front_gone_ = true;
  control_.reset();
  if (stage_ < Stage::kKilling) enter(Stage::kKilling);
}

// The first signal is the ranks' own business; whoever repeats it wants an end.
void Supervisor::on_signal(const ControlMessage& message) {
  const bool stop = message.signal == SIGINT || message.signal == SIGTERM;
  if (stage_ == Stage::kDone) return stop ? output_.discard() : void();
  if (stop && (++stop_signals_ > 1 || !any_running())) {
    return enter(stage_ < Stage::kTerminating ? Stage::kTerminating : Stage::kKilling);
  }
  if (stop) {
    output_.say(std::string("SIG") + sigabbrev_np(message.signal) + " passed on to " + list_running() +
                "; once more to end the run");
  }
  for (const Rank& rank : ranks_) {
    if (!(message.from_terminal && rank.in_front_group)) rank.send_signal(message.signal);
  }
}

void Supervisor::handle_ended_ranks() {
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(ended_ranks_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    Rank& rank = ranks_[events[static_cast<size_t>(i)].data.u32];
    int wait_status = 0;
    if (waitpid(rank.pid, &wait_status, WNOHANG) != rank.pid) continue;
    rank.pidfd.reset();
    on_rank_end(rank, wait_status);
  }
}

void Supervisor::on_rank_end(Rank& rank, int wait_status) {
  rank.wait_status = wait_status;
  rank.lifetime = Clock::now() - start_;
  if (!rank.failed() || first_failed_ || timed_out_) return;
  if (stage_ == Stage::kRunning && allowed_failures_ < options_.allowed_failures) {
    ++allowed_failures_;
    output_.say("rank " + std::to_string(rank.number) + " " + describe_end(wait_status) + "; failure " +
                std::to_string(allowed_failures_) + " of " + std::to_string(options_.allowed_failures) +
                " that are allowed");
    return;
  }
  first_failed_ = static_cast<size_t>(rank.number);
  if (options_.keep_going || stage_ != Stage::kRunning || !any_running()) return;
  output_.say("rank " + std::to_string(rank.number) + " " + describe_end(wait_status) + "; " +
              format_limit(options_.grace) + " for " + list_running() + " to end");
  enter(Stage::kGrace);
}

// Orphans of the job come to us to be reaped. A rank seen here ended just now: handle_ended_ranks() has its
// turn first.
void Supervisor::reap_orphans(bool child_signal) {
  signalfd_siginfo ignored;
  while (child_signal && read(child_signals_.get(), &ignored, sizeof ignored) > 0) {
  }
  const auto is_rank = [this](pid_t pid) {
    return std::any_of(ranks_.begin(), ranks_.end(),
                       [pid](const Rank& r) { return r.running() && r.pid == pid; });
  };
  siginfo_t child = {};
  int result = 0;
  while ((result = waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT)) == 0 && child.si_pid != 0) {
    if (is_rank(child.si_pid)) return;
    waitpid(child.si_pid, nullptr, 0);
    child.si_pid = 0;
  }
  no_children_ = result != 0 && errno == ECHILD;
  if (no_children_ || any_running()) return;
  if (stage_ == Stage::kKilling && child_signal) signal_children(SIGKILL);
  if (stage_ < Stage::kKilling && !std::exchange(ending_orphans_, true)) {
    signal_children(SIGTERM);
    enter(Stage::kTerminating);
  }
}

void Supervisor::handle_deadlines() {
  const auto now = Clock::now();
  if (now >= time_limit_) {
    time_limit_ = Clock::time_point::max();
    timed_out_ = any_running();
    if (timed_out_)
      output_.say("time limit of " + format_limit(*options_.timeout) +
                  " reached; still running: " + list_running());
    if (timed_out_ && stage_ < Stage::kTerminating) enter(Stage::kTerminating);
  }
  if (now < stage_end_) return;
  switch (stage_) {
    case Stage::kRunning:
      break;
    case Stage::kGrace:
      return enter(Stage::kTerminating);
    case Stage::kTerminating:
      return enter(Stage::kKilling);
    case Stage::kKilling:
      return enter(Stage::kDone);
    case Stage::kDone:
      return output_.discard();
  }
}

void Supervisor::enter(Stage stage) {
  stage_ = stage;
  stage_end_ = Clock::now() + (stage == Stage::kKilling ? kKillPatience : options_.grace);
  if (stage == Stage::kGrace) return;
  if (any_running()) {
    const char* what = stage == Stage::kTerminating ? "SIGTERM to "
                       : stage == Stage::kKilling   ? "SIGKILL to "
                                                    : "giving up on ";
    output_.say(what + list_running());
  }
  for (const Rank& rank : ranks_) {
    rank.send_signal(stage == Stage::kTerminating ? SIGTERM : SIGKILL);
    rank.send_signal(SIGCONT);  // a stopped process takes SIGTERM only when it goes on
  }
  if (stage == Stage::kKilling) signal_children(SIGKILL);
}

void Supervisor::report() {
  if (start_error_ || !first_failed_) return;
  const Rank& first = ranks_[*first_failed_];
  output_.say("rank " + std::to_string(first.number) + " (pid " + std::to_string(first.pid) + ") " +
              describe_end(*first.wait_status) + " after " + format_seconds(first.lifetime));
  const auto later = [&first](const Rank& rank) { return rank.failed() && rank.number != first.number; };
  if (options_.keep_going && std::any_of(ranks_.begin(), ranks_.end(), later)) {
    output_.say("failed after it: " + list_ranks(later));
  }
}

int Supervisor::exit_code() const {
  if (start_error_) return *start_error_;
  if (timed_out_) return kTimedOut;
  if (first_failed_) return shell_code(*ranks_[*first_failed_].wait_status);
  return any_running() ? 128 + SIGKILL : kOk;
}

bool Supervisor::finished() const { return stage_ == Stage::kDone || (no_children_ && !any_running()); }

bool Supervisor::any_running() const {
  return std::any_of(ranks_.begin(), ranks_.end(), std::mem_fn(&Rank::running));
}

std::string Supervisor::list_running() const { return list_ranks(std::mem_fn(&Rank::running)); }

std::string Supervisor::list_ranks(const std::function<bool(const Rank&)>& wanted) const {
  std::string text;
  size_t count = 0;
  for (const Rank& rank : ranks_) {
    if (wanted(rank)) text += (count++ == 0 ? " " : ", ") + std::to_string(rank.number);
  }
  return (count == 1 ? "rank" : "ranks") + text;
}

}  // namespace dscrun
