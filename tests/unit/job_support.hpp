// A job of several processes over loopback, and listeners that store events, for the tests of control between
// hosts.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>

#include "control/job_control.hpp"
#include "store_support.hpp"

namespace dsc::test {

class Listener final : public JobListener {
 public:
  void on_failure(uint64_t group_id, const Failure& cause) override {
    add([&] { failures_.emplace_back(group_id, cause.text); });
  }
  void on_gone(int32_t rank, dsc_result_t code, const std::string& text) override {
    add([&] { gone_[rank] = {code, text}; });
  }
  void on_left(const GroupLeft& left) override {
    add([&] { left_.push_back(left); });
  }
  void on_unresponsive(int32_t rank, bool quiet) override {
    add([&] { quiet_.emplace_back(rank, quiet); });
  }
  std::string answer(uint64_t group_id, const std::string& question) override {
    return (question.empty() ? "step " : question + " ") + std::to_string(group_id);
  }

  // Returns the code and text with which the end of a rank was announced, or DSC_OK if no announcement
  // arrives in time.
  Outcome await_gone(int32_t rank, int64_t timeout_ms = 20'000) {
    wait(timeout_ms, [&] { return gone_.contains(rank); });
    const std::lock_guard lock(mutex_);
    return gone_.contains(rank) ? gone_[rank] : Outcome{};
  }
  // Returns the cause of the n-th failure, or an empty text.
  std::string await_failure(size_t n = 0, int64_t timeout_ms = 20'000) {
    wait(timeout_ms, [&] { return failures_.size() > n; });
    const std::lock_guard lock(mutex_);
    return failures_.size() > n ? failures_[n].second : "";
  }
  // Returns the n-th report that a rank is silent or back; rank -1 if the report does not arrive in time.
  std::pair<int32_t, bool> await_quiet(size_t n, int64_t timeout_ms = 20'000) {
    wait(timeout_ms, [&] { return quiet_.size() > n; });
    const std::lock_guard lock(mutex_);
    return quiet_.size() > n ? quiet_[n] : std::pair{-1, false};
  }
  // Returns the n-th departure from a group; rank -1 if it does not arrive in time.
  GroupLeft await_left(size_t n = 0, int64_t timeout_ms = 20'000) {
    wait(timeout_ms, [&] { return left_.size() > n; });
    const std::lock_guard lock(mutex_);
    return left_.size() > n ? left_[n] : GroupLeft{0, -1, false};
  }
  size_t calls() {
    const std::lock_guard lock(mutex_);
    return calls_;
  }

 private:
  template <typename Body>
  void add(Body body) {
    const std::lock_guard lock(mutex_);
    body();
    ++calls_;
    changed_.notify_all();
  }
  template <typename Condition>
  void wait(int64_t timeout_ms, Condition condition) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), condition);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int32_t, Outcome> gone_;
  std::vector<std::pair<uint64_t, std::string>> failures_;
  std::vector<std::pair<int32_t, bool>> quiet_;
  std::vector<GroupLeft> left_;
  size_t calls_ = 0;
};

inline std::shared_ptr<JobStore> open_job(uint16_t port, bool serve) {
  StoreOptions options;
  options.serve = serve;
  options.world_size = 64;
  options.job_id = "job";
  const Environment nothing = [](const char*) -> std::optional<std::string> { return std::nullopt; };
  return std::make_shared<JobStore>(
      open_store("tcp://127.0.0.1:" + std::to_string(port), options, nothing, soon()));
}

// One rank of a job; rank 0 serves the store.
struct JobRank {
  JobRank(
      int32_t rank, int32_t world_size, uint16_t port, int64_t stall_timeout_ms = 0,
      size_t log_bytes = kJobLogBytes,
      std::function<std::vector<RankGone>()> stalled_here = [] { return std::vector<RankGone>{}; },
      const std::vector<std::vector<int32_t>>& hosts = {})
      : job(open_job(port, rank == 0)),
        control(std::make_unique<JobControl>(
            JobControlSettings{job, rank, world_size, hosts.empty() ? hosts_of(world_size) : hosts,
                               stall_timeout_ms, log_bytes, std::move(stalled_here)},
            listener, soon())) {}

  // Each rank is on a separate host.
  static std::vector<std::vector<int32_t>> hosts_of(int32_t world_size) {
    std::vector<std::vector<int32_t>> hosts;
    for (int32_t rank = 0; rank < world_size; ++rank) hosts.push_back({rank});
    return hosts;
  }

  uint16_t port() const { return job->target().port; }

  Listener listener;
  std::shared_ptr<JobStore> job;
  std::unique_ptr<JobControl> control;
};

}  // namespace dsc::test
