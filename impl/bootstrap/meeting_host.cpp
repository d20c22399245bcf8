#include "bootstrap/meeting_host.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/error.hpp"
#include "bootstrap/unix_socket.hpp"

namespace dsc {
namespace {

constexpr int64_t kHostCheckMs = 50;
constexpr int64_t kHostSliceMs = 1000;
constexpr int64_t kHelloMs = 5000;  // limit until a connection sends its hello
constexpr int kAcceptsAtOnce = 64;

}  // namespace

MeetingHost::MeetingHost(Claim own, UniqueFd listener, Deadline deadline, int64_t progress_ms,
                         std::function<void()> check)
    : own_(std::move(own)),
      listener_(std::move(listener)),
      judge_(own_.world_size, Hosts::kOne, deadline, progress_ms),
      check_(std::move(check)) {}

Verdict MeetingHost::run() {
  std::optional<Verdict> verdict;
  while (!(verdict = decide())) {
    if (check_) check_();
    wait_for_news();
    drop_silent();
  }
  verdict->host_pid = own_.pid;
  announce(*verdict);
  return std::move(*verdict);
}

std::vector<Claim> MeetingHost::claims() const {
  std::vector<Claim> claims{own_};
  for (const Connection& connection : connections_)
    if (connection.claim) claims.push_back(*connection.claim);
  return claims;
}

std::optional<Verdict> MeetingHost::decide() {
  auto verdict = judge_.decide(claims(), left_);
  if (verdict && verdict->code == DSC_ERR_TIMEOUT && accept_error_ != 0) {
    verdict->code = DSC_ERR_SYSTEM;
    verdict->text += "; others knock, but accepting them fails on rank " + std::to_string(own_.rank) + ": " +
                     std::generic_category().message(accept_error_);
  }
  return verdict;
}

void MeetingHost::announce(const Verdict& verdict) {
  // An error is also sent to those that are just connecting; after success they are late and get another
  // answer.
  if (verdict.code != DSC_OK) accept_waiting();
  const std::string bytes = encode_verdict(verdict);
  for (const Connection& connection : connections_)
    if (connection.claim || verdict.code != DSC_OK)
      send_message(connection.fd.get(), bytes.data(), bytes.size());
  connections_.clear();
}

int64_t MeetingHost::wait_ms() const {
  return std::min(check_ ? kHostCheckMs : kHostSliceMs, judge_.next_look().remaining_ms());
}

void MeetingHost::wait_for_news() {
  std::vector<pollfd> entries{{listener_.get(), POLLIN, 0}};
  for (const Connection& connection : connections_) entries.push_back({connection.fd.get(), POLLIN, 0});
  const int ready = ::poll(entries.data(), entries.size(), static_cast<int>(wait_ms()));
  if (ready < 0 && errno != EINTR) fail_errno(errno, "poll");
  if (ready <= 0) return;
  for (size_t i = 0; i < connections_.size(); ++i)
    if (entries[i + 1].revents != 0) read_hello(connections_[i]);
  std::erase_if(connections_, [](const Connection& connection) { return !connection.fd; });
  if (entries[0].revents != 0) accept_waiting();
}

void MeetingHost::accept_waiting() {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    int error = 0;
    UniqueFd fd = accept_connection(listener_.get(), error);
    if (fd) {
      accept_error_ = 0;
      if (peer_credentials(fd.get()).uid == ::geteuid())
        connections_.push_back({std::move(fd), now_ns(), {}});
    } else if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS) {
      accept_error_ = error;
      sleep_until(Deadline::after_ms(10));  // connections stay in the queue until descriptors are free
      return;
    } else if (error != EINTR && error != ECONNABORTED) {
      return;
    }
  }
}

// Closes connection.fd if the other side is gone or is not a rank.
void MeetingHost::read_hello(Connection& connection) {
  HelloWire wire;
  const ssize_t got = receive_message(connection.fd.get(), &wire, sizeof wire);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
  auto hello = got > 0 && !connection.claim ? decode_hello(&wire, static_cast<size_t>(got)) : std::nullopt;
  if (hello) {
    connection.claim = std::move(hello->claim);
    if (hello->remaining_ms < kNoDeadlineMs) judge_.hurry(Deadline::after_ms(hello->remaining_ms));
    return;
  }
  if (connection.claim) left_.push_back(*connection.claim);
  connection.fd.reset();
}

void MeetingHost::drop_silent() {
  const size_t most_silent = 64 + 2 * static_cast<size_t>(own_.world_size);
  const auto silent = [](const Connection& connection) { return !connection.claim; };
  auto count = static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(), silent));
  const int64_t oldest_ns = now_ns() - kHelloMs * kNsPerMs;
  std::erase_if(connections_, [&](const Connection& connection) {  // in order of arrival
    if (connection.claim || (count <= most_silent && connection.since_ns > oldest_ns)) return false;
    --count;
    return true;
  });
}

}  // namespace dsc
