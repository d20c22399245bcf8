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
constexpr int64_t kHelloMs = 5000;  // time within which a new connection must send its hello
constexpr int kAcceptsAtOnce = 64;

}  // namespace

MeetingHost::MeetingHost(Hello own, UniqueFd listener, Deadline deadline, int64_t progress_ms,
                         std::function<void()> check)
    : own_(std::move(own)),
      listener_(std::move(listener)),
      coordinator_(own_.world_size, Hosts::kOne, deadline, progress_ms),
      check_(std::move(check)) {}

MeetingOutcome MeetingHost::run() {
  std::optional<MeetingOutcome> outcome;
  while (!(outcome = decide())) {
    if (check_) check_();
    wait_for_news();
    drop_unidentified();
  }
  outcome->host_pid = own_.pid;
  announce(*outcome);
  return std::move(*outcome);
}

std::vector<Hello> MeetingHost::hellos() const {
  std::vector<Hello> hellos{own_};
  for (const Connection& connection : connections_)
    if (connection.hello) hellos.push_back(*connection.hello);
  return hellos;
}

std::optional<MeetingOutcome> MeetingHost::decide() {
  auto outcome = coordinator_.decide(hellos(), left_);
  if (outcome && outcome->code == DSC_ERR_TIMEOUT && accept_error_ != 0) {
    outcome->code = DSC_ERR_SYSTEM;
    outcome->text += "; others connect, but accepting them fails on rank " + std::to_string(own_.rank) +
                     ": " + std::generic_category().message(accept_error_);
  }
  return outcome;
}

void MeetingHost::announce(const MeetingOutcome& outcome) {
  // An error is also sent to ranks that are just connecting. After a success they are too late, and get
  // another answer later.
  if (outcome.code != DSC_OK) accept_waiting();
  const std::string bytes = encode_outcome(outcome);
  for (const Connection& connection : connections_)
    if (connection.hello || outcome.code != DSC_OK)
      send_message(connection.fd.get(), bytes.data(), bytes.size());
  connections_.clear();
}

int64_t MeetingHost::wait_ms() const {
  return std::min(check_ ? kHostCheckMs : kHostSliceMs, coordinator_.next_look().remaining_ms());
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
    } else if (error == EAGAIN || error == EWOULDBLOCK) {
      return;
    } else if (error != EINTR && error != ECONNABORTED) {
      accept_error_ = error;
      sleep_until(Deadline::after_ms(10));  // the connection remains in the queue until a descriptor is free
      return;
    }
  }
}

// Reads a hello. Closes connection.fd if the peer is gone or is not a rank.
void MeetingHost::read_hello(Connection& connection) {
  HelloWire wire;
  const ssize_t got = receive_message(connection.fd.get(), &wire, sizeof wire);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
  auto hello = got > 0 && !connection.hello ? decode_hello(&wire, static_cast<size_t>(got)) : std::nullopt;
  if (hello) {
    if (hello->remaining_ms < kNoDeadlineMs)
      coordinator_.shorten_deadline(Deadline::after_ms(hello->remaining_ms));
    connection.hello = *std::move(hello);
    return;
  }
  if (connection.hello) left_.push_back(*connection.hello);
  connection.fd.reset();
}

void MeetingHost::drop_unidentified() {
  const size_t most_unidentified = 64 + 2 * static_cast<size_t>(own_.world_size);
  const auto unidentified = [](const Connection& connection) { return !connection.hello; };
  auto count = static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(), unidentified));
  const int64_t oldest_ns = now_ns() - kHelloMs * kNsPerMs;
  // Visits connections in order of arrival, so the oldest are dropped first.
  std::erase_if(connections_, [&](const Connection& connection) {
    if (connection.hello || (count <= most_unidentified && connection.since_ns > oldest_ns)) return false;
    --count;
    return true;
  });
}

}  // namespace dsc
