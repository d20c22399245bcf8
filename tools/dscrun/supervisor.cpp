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

// A rank that ends within this time after INT or TERM was asked to end.
constexpr auto kStopping = std::chrono::minutes(1);
// A killed process ends immediately unless a device holds it.
constexpr auto kKillPatience = std::chrono::seconds(5);
// This number of signs of life is sent within the time after which a silent dscrun counts as lost.
constexpr int kBeats = 4;
// ended_ identifies a process by a number: below kRemotes it is a rank, from kRemotes on it is a connection.
constexpr size_t kRemotes = size_t{1} << 32;

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

std::string describe(const Rank& rank) {
  return rank.lost.empty() ? describe_end(*rank.wait_status) : rank.lost;
}

bool is_raw(const Options& options, const Work& work) {
  return !options.prefix && work.host_jobs.size() == 1 && work.host_jobs.front().job.ranks == 1;
}

}  // namespace

Supervisor::Supervisor(const Options& options, const Work& work, int control, pid_t front_group,
                       Clock::time_point time_limit)
    : options_(options),
      control_(control),
      child_signals_(watch_children()),
      ended_(epoll_create1(EPOLL_CLOEXEC)),
      output_(options.prefix, is_raw(options, work), options.color),
      time_limit_(time_limit) {
  if (options.as_node) orders_ = std::make_unique<Orders>(STDIN_FILENO);
  start(work, front_group);
  if (orders_ || !remotes_.empty()) beat_ = Clock::now() + options_.lost_after / (orders_ ? 1 : kBeats);
}

// Kills connections that still exist, because they may hang.
Supervisor::~Supervisor() {
  for (const auto& remote : remotes_)
    if (remote->connected()) kill(-remote->process().pid, SIGKILL);
}

void Supervisor::start(const Work& work, pid_t front_group) try {
  if (!work.launcher.empty()) return start_launcher(work, front_group);
  for (const HostJob& host_job : work.host_jobs) {
    if (host_job.remote) {
      start_there(host_job);
    } else {
      start_here(host_job.job, front_group);
    }
  }
} catch (const StartError& error) {
  output_.say(error.what());
  start_error_ = error.exit_code;
  enter(Stage::kKilling);
}

void Supervisor::start_here(const NodeJob& job, pid_t front_group) {
  for (int i = 0; i < job.ranks; ++i) {
    Rank rank = start_rank(job, job.first_rank + i, front_group, !options_.as_node);
    watch(rank.process, ranks_.size());
    output_.add_rank(rank.number, std::move(rank.process.out), std::move(rank.process.err));
    if (options_.as_node)
      output_.report("@started " + std::to_string(rank.number) + " " + std::to_string(rank.process.pid));
    ranks_.push_back(std::move(rank));
  }
}

void Supervisor::start_there(const HostJob& host_job) {
  auto remote = std::make_unique<Remote>(options_, *host_job.remote, host_job.job);
  watch(remote->process(), kRemotes + remotes_.size());
  remote->take_output(output_, [this](std::string_view event) { on_event(event); });
  for (int i = 0; i < host_job.job.ranks; ++i) {
    Rank rank;
    rank.number = host_job.job.first_rank + i;
    rank.name = "rank " + std::to_string(rank.number);
    rank.remote = remote.get();
    ranks_.push_back(std::move(rank));
  }
  remotes_.push_back(std::move(remote));
}

void Supervisor::start_launcher(const Work& work, pid_t front_group) {
  Rank rank;
  rank.name = work.launcher.front();
  rank.in_front_group = front_group != 0;
  rank.process = start_process({.name = rank.name,
                                .command = work.launcher,
                                .environment = work.environment,
                                .input = Input::kOurs,
                                .group = front_group});
  watch(rank.process, 0);
  output_.add_plain(std::move(rank.process.out), std::move(rank.process.err));
  ranks_.push_back(std::move(rank));
}

void Supervisor::watch(const Process& process, size_t number) {
  epoll_event event = {.events = EPOLLIN, .data = {.u64 = number}};
  if (epoll_ctl(ended_.get(), EPOLL_CTL_ADD, process.pidfd.get(), &event) != 0)
    throw StartError(std::string("cannot watch a process: ") + strerror(errno), kOwnFailure);
}

Outcome Supervisor::run() {
  while (!finished()) wait_for_events();
  output_.drain();
  report();
  // The reader of this output may be slow. If the time limit has passed, it gets only the grace period.
  stage_ = Stage::kDone;
  stage_end_ = timed_out_ ? Clock::now() + options_.grace : Clock::time_point::max();
  while (output_.pending() && !front_gone_) wait_for_events();
  const bool asked = timed_out_ || start_error_ || stop_signals_ > 0 || front_gone_;
  return {exit_code(), first_failed_ && !asked && !any_running(), lost_end_};
}

void Supervisor::wait_for_events() {
  std::vector<pollfd> polls = {{control_, POLLIN, 0},
                               {child_signals_.get(), POLLIN, 0},
                               {ended_.get(), POLLIN, 0},
                               {orders_ ? orders_->fd() : -1, POLLIN, 0}};
  for (const auto& remote : remotes_) polls.push_back({remote->pending() ? remote->input() : -1, POLLOUT, 0});
  const size_t own = polls.size();
  output_.append_polls(polls);
  if (poll(polls.data(), polls.size(), poll_timeout_ms()) < 0) return;  // the only possible error is EINTR
  output_.handle(polls.data() + own, polls.size() - own);
  for (const auto& remote : remotes_) remote->write_some();
  if (polls[2].revents != 0) handle_ended();
  reap_orphans(polls[1].revents != 0);
  if (polls[0].revents != 0) handle_control();
  if (polls[3].revents != 0) handle_orders();
  limit_closing();
  handle_beat();
  handle_deadlines();
}

int Supervisor::poll_timeout_ms() const {
  const auto next = std::min({stage_end_, time_limit_, beat_});
  if (next == Clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<Millis>(next - Clock::now()).count();
  return static_cast<int>(std::clamp<long>(left, 0, 1'000'000));
}

void Supervisor::handle_control() {
  ControlMessage message;
  const ssize_t bytes = read(control_, &message, sizeof message);
  if (bytes == static_cast<ssize_t>(sizeof message)) return on_signal(message);
  if (bytes < 0 && errno == EINTR) return;
  front_gone_ = true;
  control_ = -1;
  if (stage_ < Stage::kKilling) enter(Stage::kKilling);
}

// The end of the connection ends the job, wherever the connection broke.
void Supervisor::handle_orders() {
  const bool open = orders_->read_some([this](int number, int signal) {
    for (const Rank& rank : ranks_)
      if (rank.number == number) rank.send_signal(signal);
  });
  beat_ = Clock::now() + options_.lost_after;
  if (open) return;
  orders_.reset();
  beat_ = Clock::time_point::max();
  if (stage_ < Stage::kKilling) enter(Stage::kKilling);
}

// Ranks handle the first signal themselves. A second one kills them.
void Supervisor::on_signal(const ControlMessage& message) {
  const bool stop = message.signal == SIGINT || message.signal == SIGTERM;
  if (stage_ == Stage::kDone) return stop ? output_.discard() : void();
  if (stop && (++stop_signals_ > 1 || !any_running())) return enter(Stage::kKilling);
  if (stop) {
    stopped_ = Clock::now();
    output_.say(std::string("SIG") + sigabbrev_np(message.signal) + " passed on to " + list_running() +
                "; send it again to kill them");
  }
  for (const Rank& rank : ranks_) {
    if (!(message.from_terminal && rank.in_front_group)) rank.send_signal(message.signal);
  }
}

void Supervisor::handle_ended() {
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(ended_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const size_t number = events[static_cast<size_t>(i)].data.u64;
    Process& process = number < kRemotes ? ranks_[number].process : remotes_[number - kRemotes]->process();
    int wait_status = 0;
    if (waitpid(process.pid, &wait_status, WNOHANG) != process.pid) continue;
    process.pidfd.reset();
    if (number < kRemotes) {
      on_rank_end(ranks_[number], wait_status);
    } else {
      on_remote_end(*remotes_[number - kRemotes], wait_status);
    }
  }
}

// An event is "@started RANK PID" or "@ended RANK WAIT_STATUS".
void Supervisor::on_event(std::string_view event) {
  const std::string text(event);
  int number = 0, value = 0;
  const bool started = std::sscanf(text.c_str(), "@started %d %d", &number, &value) == 2;
  if (!started && std::sscanf(text.c_str(), "@ended %d %d", &number, &value) != 2) return;
  for (Rank& rank : ranks_) {
    if (rank.number != number || rank.remote == nullptr || !rank.running()) continue;
    if (started) {
      rank.process.pid = value;
    } else {
      on_rank_end(rank, value);
    }
  }
}

// Ranks whose end was not reported are gone, or will be soon. The dscrun on that host ends with its
// connection, or at the latest when it has heard nothing for the time `lost_after`.
void Supervisor::on_remote_end(Remote& remote, int wait_status) {
  remote.drain(output_);
  remote.set_ended();
  const auto lost = [&remote](const Rank& rank) { return rank.remote == &remote && rank.running(); };
  // The first failed rank is reported separately. All other lost ranks share one line.
  if (first_failed_ && stage_ < Stage::kKilling && std::any_of(ranks_.begin(), ranks_.end(), lost))
    output_.say(list_ranks(lost) + " also lost: the connection to " + remote.host() + " " +
                describe_end(wait_status));
  for (Rank& rank : ranks_) {
    if (!lost(rank)) continue;
    rank.lost = "was lost: the connection to " + remote.host() + " " + describe_end(wait_status);
    lost_end_ = Clock::now() + options_.lost_after;
    on_rank_end(rank, wait_status != 0 ? wait_status : kOwnFailure << 8);
  }
}

void Supervisor::on_rank_end(Rank& rank, int wait_status) {
  rank.wait_status = wait_status;
  rank.lifetime = Clock::now() - start_;
  if (options_.as_node)
    return output_.report("@ended " + std::to_string(rank.number) + " " + std::to_string(wait_status));
  if (!rank.failed() || first_failed_ || timed_out_) return;
  if (stage_ == Stage::kRunning && allowed_failures_ < options_.allowed_failures) {
    ++allowed_failures_;
    output_.say(rank.name + " " + describe(rank) + "; failure " + std::to_string(allowed_failures_) + " of " +
                std::to_string(options_.allowed_failures) + " allowed failures");
    return;
  }
  first_failed_ = static_cast<size_t>(&rank - ranks_.data());
  if (options_.keep_going || stage_ != Stage::kRunning || !any_running()) return;
  // Soon after INT or TERM, a rank ends because it was asked to. The other ranks then get the time that they
  // need.
  if (stop_signals_ > 0 && Clock::now() - stopped_ < kStopping) return;
  output_.say(rank.name + " " + describe(rank) + "; waiting up to " + format_limit(options_.grace) + " for " +
              list_running() + " to end");
  enter(Stage::kGrace);
}

// Reaps orphans of the job, which become children of this process. If a rank is found, it has just ended, and
// handle_ended() must process it first.
void Supervisor::reap_orphans(bool child_signal) {
  signalfd_siginfo ignored;
  while (child_signal && read(child_signals_.get(), &ignored, sizeof ignored) > 0) {
  }
  siginfo_t child = {};
  int result = 0;
  while ((result = waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT)) == 0 && child.si_pid != 0) {
    if (is_ours(child.si_pid)) return;
    waitpid(child.si_pid, nullptr, 0);
    child.si_pid = 0;
  }
  no_children_ = result != 0 && errno == ECHILD;
  if (no_children_ || any_running() || any_connected()) return;
  // This is done at every event, because the signal about new orphans may have been merged with another one.
  if (stage_ == Stage::kKilling) signal_children(SIGKILL);
  if (stage_ < Stage::kKilling && !std::exchange(ending_orphans_, true)) {
    signal_children(SIGTERM);
    enter(Stage::kTerminating);
  }
}

// When all ranks have ended, a dscrun on another host may still have to end orphans by SIGTERM and SIGKILL.
// This limits the time for that.
void Supervisor::limit_closing() {
  if (any_running() || !any_connected() || stage_ >= Stage::kKilling || std::exchange(closing_, true)) return;
  stage_ = Stage::kTerminating;
  stage_end_ = Clock::now() + 2 * options_.grace + kKillPatience;
}

// A host without power or network does not close its connection, so both sides send and expect signs of life.
void Supervisor::handle_beat() {
  if (Clock::now() < beat_) return;
  if (orders_) {
    output_.say("heard nothing for " + format_limit(options_.lost_after) +
                " from the dscrun that started this dscrun");
    orders_.reset();
    beat_ = Clock::time_point::max();
    if (stage_ < Stage::kKilling) enter(Stage::kKilling);
    return;
  }
  for (const auto& remote : remotes_) remote->send_beat();
  beat_ = Clock::now() + options_.lost_after / kBeats;
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
    rank.send_signal(SIGCONT);  // a stopped process handles SIGTERM only after SIGCONT
  }
  if (stage == Stage::kKilling) {
    for (const auto& remote : remotes_) remote->hang_up();
    if (!any_connected()) signal_children(SIGKILL);
  }
}

void Supervisor::report() {
  if (start_error_ || !first_failed_) return;
  const Rank& first = ranks_[*first_failed_];
  const std::string where = first.remote != nullptr ? " on " + first.remote->host() : "";
  const std::string pid =
      first.process.pid != 0 ? " (pid " + std::to_string(first.process.pid) + where + ")" : "";
  output_.say(first.name + pid + " " + describe(first) + " after " + format_seconds(first.lifetime));
  const auto later = [&first](const Rank& rank) { return rank.failed() && &rank != &first; };
  if (options_.keep_going && std::any_of(ranks_.begin(), ranks_.end(), later)) {
    output_.say("failed later: " + list_ranks(later));
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

bool Supervisor::any_connected() const {
  return std::any_of(remotes_.begin(), remotes_.end(),
                     [](const auto& remote) { return remote->connected(); });
}

bool Supervisor::is_ours(pid_t pid) const {
  const auto is_rank = [pid](const Rank& r) {
    return r.running() && r.remote == nullptr && r.process.pid == pid;
  };
  const auto is_connection = [pid](const auto& r) { return r->connected() && r->process().pid == pid; };
  return std::any_of(ranks_.begin(), ranks_.end(), is_rank) ||
         std::any_of(remotes_.begin(), remotes_.end(), is_connection);
}

std::string Supervisor::list_running() const { return list_ranks(std::mem_fn(&Rank::running)); }

std::string Supervisor::list_ranks(const std::function<bool(const Rank&)>& wanted) const {
  if (ranks_.size() == 1) return ranks_.front().name;
  std::string text;
  size_t count = 0;
  for (const Rank& rank : ranks_) {
    if (wanted(rank)) text += (count++ == 0 ? " " : ", ") + std::to_string(rank.number);
  }
  return (count == 1 ? "rank" : "ranks") + text;
}

}  // namespace dscrun
