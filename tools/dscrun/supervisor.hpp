// Supervises the ranks of a run, from their start until no process of the job remains.
#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dscrun/options.hpp"
#include "dscrun/output.hpp"
#include "dscrun/rank.hpp"
#include "dscrun/remote.hpp"
#include "dscrun/unique_fd.hpp"
#include "dscrun/work.hpp"

namespace dscrun {

// A message from the front process to the keeper. The end of the pipe means that the front process is gone.
struct ControlMessage {
  int signal;
  bool from_terminal;  // the kernel has then already sent it to the terminal's foreground group
};

struct Outcome {
  int exit_code;
  bool may_restart;  // a rank failed, no signal asked for the end, and no process that can be seen remains
  std::chrono::steady_clock::time_point lost_end;  // until then, ranks behind a lost connection may still run
};

class Supervisor {
 public:
  using Clock = std::chrono::steady_clock;

  // `control` is a pipe of ControlMessage. `front_group` is the process group that rank 0 joins, or 0.
  Supervisor(const Options& options, const Work& work, int control, pid_t front_group,
             Clock::time_point time_limit);
  ~Supervisor();

  Outcome run();

 private:
  // At stage_end_, each stage is followed by the next one.
  enum class Stage { kRunning, kGrace, kTerminating, kKilling, kDone };

  void start(const Work& work, pid_t front_group);
  void start_here(const NodeJob& job, pid_t front_group);
  void start_there(const HostJob& host_job);
  void start_launcher(const Work& work, pid_t front_group);
  void watch(const Process& process, size_t number);

  void wait_for_events();
  int poll_timeout_ms() const;
  void handle_control();
  void handle_orders();
  void handle_ended();
  void reap_orphans(bool child_signal);
  void handle_deadlines();
  void limit_closing();
  void handle_beat();

  void on_event(std::string_view event);
  void on_remote_end(Remote& remote, int wait_status);
  void on_signal(const ControlMessage& message);
  void on_rank_end(Rank& rank, int wait_status);
  void enter(Stage stage);
  void report();
  int exit_code() const;

  bool finished() const;
  bool any_running() const;
  bool any_connected() const;
  bool is_ours(pid_t pid) const;
  std::string list_running() const;
  std::string list_ranks(const std::function<bool(const Rank&)>& wanted) const;

  const Options& options_;
  int control_;
  UniqueFd child_signals_;  // signalfd for SIGCHLD
  UniqueFd ended_;          // epoll of pidfds: it keeps the order in which ranks ended
  Output output_;
  std::vector<Rank> ranks_;
  std::vector<std::unique_ptr<Remote>> remotes_;
  std::unique_ptr<Orders> orders_;  // from the dscrun that started this one

  const Clock::time_point start_ = Clock::now();
  Stage stage_ = Stage::kRunning;
  Clock::time_point stage_end_ = Clock::time_point::max();
  Clock::time_point time_limit_;
  Clock::time_point beat_ = Clock::time_point::max();  // when a sign of life must be sent or received
  Clock::time_point lost_end_{};                       // initially in the past
  std::optional<int> start_error_;
  std::optional<size_t> first_failed_;  // the first failure beyond the allowed ones
  int allowed_failures_ = 0;            // number of allowed failures so far
  int stop_signals_ = 0;                // number of INT and TERM signals so far
  Clock::time_point stopped_ = {};      // time of the first of these signals
  bool timed_out_ = false;
  bool front_gone_ = false;
  bool no_children_ = false;
  bool ending_orphans_ = false;
  bool closing_ = false;
};

}  // namespace dscrun
