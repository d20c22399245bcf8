#include "store/tcp_store.hpp"

#include <time.h>

#include <algorithm>
#include <random>
#include <utility>

#include "base/error.hpp"

namespace dsc {
namespace {

constexpr double kFirstPauseMs = 5;
constexpr double kLongestPauseMs = 1000;
constexpr double kGrowth = 1.5;

// Between half of it and one and a half, so that many ranks do not come at one time.
void pause_about(double ms, Deadline deadline) {
  thread_local std::minstd_rand random(std::random_device{}());
  const double jittered = ms * std::uniform_real_distribution<>(0.5, 1.5)(random);
  const int64_t ns = std::min(static_cast<int64_t>(jittered * kNsPerMs), deadline.remaining_ns());
  const timespec time{ns / kNsPerSecond, ns % kNsPerSecond};
  nanosleep(&time, nullptr);
}

std::string list_of(const std::vector<SocketAddress>& addresses) {
  std::string text;
  for (const SocketAddress& address : addresses) text += (text.empty() ? "" : ", ") + to_text(address);
  return text;
}

}  // namespace

TcpStore::TcpStore(StoreTarget target, Deadline deadline) : target_(std::move(target)) {
  auto channel = connect(deadline);
  const MutexLock lock(mutex_);
  idle_.push_back(std::move(channel));
}

std::unique_ptr<Channel> TcpStore::connect(Deadline deadline) const {
  const int64_t start = now_ns();
  std::string reason;
  for (double pause_ms = kFirstPauseMs;; pause_ms = std::min(pause_ms * kGrowth, kLongestPauseMs)) {
    if (auto channel = Channel::connect(target_, deadline, reason)) return channel;
    pause_about(pause_ms, deadline);
    if (deadline.passed())
      fail(DSC_ERR_TIMEOUT, "no store at %s within %lld ms (tried %s): %s", target_.text().c_str(),
           static_cast<long long>((now_ns() - start) / kNsPerMs), list_of(target_.addresses).c_str(),
           reason.c_str());
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
  return connect(deadline);
}

StoreReply TcpStore::perform(const StoreRequest& request, Deadline deadline) {
  auto channel = take(deadline);
  struct GiveBack {
    TcpStore& store;
    std::unique_ptr<Channel>& channel;
    ~GiveBack() {
      if (!channel->usable()) return;
      const MutexLock lock(store.mutex_);
      store.idle_.push_back(std::move(channel));
    }
  } const give_back{*this, channel};
  return channel->ask(request, deadline);
}

}  // namespace dsc
