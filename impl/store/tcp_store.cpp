#include "store/tcp_store.hpp"

#include <time.h>

#include <algorithm>
#include <random>
#include <utility>

#include "base/error.hpp"
#include "base/joined.hpp"
#include "base/process_guard.hpp"
#include "store/key_table.hpp"

namespace dsc {
namespace {

constexpr double kFirstPauseMs = 5;
constexpr double kLongestPauseMs = 1000;
constexpr double kGrowth = 1.5;
// Minimum time for a new connection, so that a call with little time left can still reach a running server.
constexpr int kReconnectMs = 1000;

// Sleeps for 0.5 to 1.5 times the given time. The time is random, so that many ranks do not retry at the same
// moment.
void pause_about(double ms, Deadline deadline) {
  thread_local std::minstd_rand random(std::random_device{}());
  const double jittered = ms * std::uniform_real_distribution<>(0.5, 1.5)(random);
  const int64_t ns = std::min(static_cast<int64_t>(jittered * kNsPerMs), deadline.remaining_ns());
  const timespec time{ns / kNsPerSecond, ns % kNsPerSecond};
  nanosleep(&time, nullptr);
}

}  // namespace

TcpStore::TcpStore(StoreTarget target, Deadline deadline) : target_(std::move(target)) {
  auto channel = connect(deadline);
  incarnation_ = channel->incarnation();
  give_back(std::move(channel));
}

std::unique_ptr<Channel> TcpStore::connect(Deadline deadline) const {
  const int64_t start = now_ns();
  Channel::Failure failure;
  for (double pause_ms = kFirstPauseMs;; pause_ms = std::min(pause_ms * kGrowth, kLongestPauseMs)) {
    if (auto channel = Channel::connect(target_, deadline, failure)) return channel;
    pause_about(pause_ms, deadline);
    if (deadline.passed())
      fail(DSC_ERR_TIMEOUT, "no store at %s within %lld ms (tried %s): %s", target_.text().c_str(),
           static_cast<long long>((now_ns() - start) / kNsPerMs),
           joined(target_.addresses, ", ", to_text).c_str(), failure.reason.c_str());
  }
}

// The server has existed before. If no server listens now, it has ended.
std::unique_ptr<Channel> TcpStore::connect_again(Deadline deadline) const {
  const Deadline reconnect_deadline = later(deadline, Deadline::after_ms(kReconnectMs));
  Channel::Failure failure;
  while (true) {
    if (auto channel = Channel::connect(target_, reconnect_deadline, failure)) {
      // Another server has an empty table. A client that used it would count from 0 again, and wait for keys
      // that were set in the earlier server.
      if (channel->incarnation() == incarnation_) return channel;
      fail(DSC_ERR_PEER_DEAD, "the store at %s is gone: another store has replaced it",
           target_.text().c_str());
    }
    if (!failure.reached)
      fail(DSC_ERR_PEER_DEAD, "the store at %s is gone: %s", target_.text().c_str(), failure.reason.c_str());
    if (reconnect_deadline.passed())
      fail(DSC_ERR_TIMEOUT, "the store at %s cannot be reached: %s", target_.text().c_str(),
           failure.reason.c_str());
    pause_about(kFirstPauseMs, reconnect_deadline);
  }
}

std::unique_ptr<Channel> TcpStore::take(Deadline deadline) {
  {
    const MutexLock lock(mutex_);
    while (!idle_.empty()) {
      auto channel = std::move(idle_.back());
      idle_.pop_back();
      if (channel->usable()) return channel;
    }
  }
  return connect_again(deadline);
}

void TcpStore::give_back(std::unique_ptr<Channel> channel) {
  const MutexLock lock(mutex_);
  idle_.push_back(std::move(channel));
}

StoreReply TcpStore::perform(const StoreRequest& request, Deadline deadline) {
  check_request(request, {});  // the server would close the connection if it is malformed
  auto channel = take(deadline);
  struct GiveBack {
    TcpStore& store;
    std::unique_ptr<Channel>& channel;
    ~GiveBack() {
      if (channel->usable())
        // If memory runs out, the connection is closed.
        call_out([this] { store.give_back(std::move(channel)); });
    }
  } const give_back{*this, channel};
  return channel->ask(request, deadline);
}

}  // namespace dsc
