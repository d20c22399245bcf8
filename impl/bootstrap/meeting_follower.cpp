#include "bootstrap/meeting_follower.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "bootstrap/unix_socket.hpp"

namespace dsc {
namespace {

constexpr int64_t kCheckMs = 50;
// Extra time after the deadline, for an outcome that was sent at the deadline.
constexpr int64_t kOutcomeSlackMs = 1000;

MeetingOutcome answer(dsc_result_t code, std::string text) {
  MeetingOutcome outcome;
  outcome.code = code;
  outcome.text = std::move(text);
  return outcome;
}

bool wait_for_outcome(int fd, Deadline deadline, const std::function<void()>& check) {
  const Deadline last{deadline.ns == Deadline::never().ns ? deadline.ns
                                                          : deadline.ns + kOutcomeSlackMs * kNsPerMs};
  while (!wait_ready(fd, POLLIN, {std::min(last.ns, Deadline::after_ms(kCheckMs).ns)})) {
    if (check) check();
    if (last.passed()) return false;
  }
  return true;
}

}  // namespace

MeetingOutcome follow_meeting(UniqueFd connection, const Hello& own, Deadline deadline,
                              const std::function<void()>& check) {
  // Abstract names have no permissions, so another user may have bound this name first.
  const PeerCredentials host = peer_credentials(connection.get());
  const std::string who = "pid " + std::to_string(host.pid);
  if (host.uid != ::geteuid())
    return answer(DSC_ERR_ADDR_IN_USE, "the name is held by " + who + " of user " + std::to_string(host.uid) +
                                           ", expected user " + std::to_string(::geteuid()));
  Hello hello = own;
  hello.remaining_ms = deadline.remaining_ms();
  const std::string message = encode_hello(hello);
  const ssize_t sent = send_message(connection.get(), message.data(), message.size());
  // If the connection is closed, receiving returns the reason.
  if (sent < 0 && errno != EPIPE && errno != ECONNRESET)
    return answer(DSC_IN_PROGRESS, who + ", which hosts the meeting, did not take this rank's greeting");
  std::string bytes(kMaxOutcomeBytes, '\0');
  ssize_t got = -1;
  do {  // repeated only if no message was read, because the outcome is sent only once
    if (!wait_for_outcome(connection.get(), deadline, check))
      return answer(DSC_ERR_TIMEOUT, who + " hosts the meeting but gave no result; is that process stopped?");
    got = receive_message(connection.get(), bytes.data(), bytes.size());
  } while (got < 0 && errno == EAGAIN);
  if (got <= 0) return answer(DSC_IN_PROGRESS, who + ", which hosted the meeting, is gone");
  return decode_outcome(bytes.data(), std::min(static_cast<size_t>(got), bytes.size()));
}

}  // namespace dsc
