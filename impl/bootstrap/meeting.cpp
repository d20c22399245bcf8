#include "bootstrap/meeting.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "bootstrap/meeting_follower.hpp"
#include "bootstrap/meeting_host.hpp"
#include "bootstrap/meeting_wire.hpp"
#include "bootstrap/unix_socket.hpp"
#include "store/address.hpp"

namespace dsc {
namespace {

constexpr int64_t kConnectPauseMs = 2;

void check_settings(const MeetingSettings& settings) {
  if (settings.world_size < 1)
    fail(DSC_ERR_CONFIG, "world size is %d, expected 1 or more", settings.world_size);
  if (settings.world_size > kMaxRanks)
    fail(DSC_ERR_UNSUPPORTED,
         "world size is %d, expected at most %d: this version supports no more ranks on one host",
         settings.world_size, kMaxRanks);
  if (settings.world_size == 1 && settings.rank != 0)
    fail(DSC_ERR_CONFIG, "rank %d is outside its world: expected 0 in a world of 1", settings.rank);
}

}  // namespace

Hello hello_of(const MeetingSettings& settings) {
  Hello hello;
  hello.rank = settings.rank;
  hello.world_size = settings.world_size;
  hello.local_rank = settings.local_rank;
  hello.pid = ::getpid();
  hello.wire_version = kMeetingVersion;
  hello.library_version = settings.library_version;
  hello.config_hash = fnv1a(settings.config);
  hello.config = settings.config.substr(0, kConfigBytes - 1);
  hello.host = settings.host;
  hello.endpoint = settings.endpoint;
  hello.host_name = settings.host_name;
  return hello;
}

void fail_meeting(dsc_result_t code, const std::string& text, const RankList& ranks,
                  const MeetingSettings& settings) {
  Failure cause;
  cause.ranks = ranks;
  fail_because_of(cause, code, "rank %d of %d, meeting at %s%s%s: %s", settings.rank, settings.world_size,
                  host_and_port(settings.master_addr, static_cast<uint16_t>(settings.master_port)).c_str(),
                  settings.job_id.empty() ? "" : ", job ", settings.job_id.c_str(), text.c_str());
}

namespace {

// Returns the outcome of a world of one rank.
MeetingOutcome alone(const Hello& hello) {
  MeetingOutcome outcome;
  outcome.host_pid = hello.pid;
  outcome.nonce = random_nonce();
  outcome.members = make_table({hello});
  return outcome;
}

// Tries once to host the meeting or to take part in it. Returns DSC_IN_PROGRESS if the rank should try again.
MeetingOutcome attempt(const MeetingSettings& settings, const Hello& hello, const std::string& name,
                       UniqueFd& listener) {
  if (UniqueFd bound = listen_abstract(name, 64 + 2 * settings.world_size)) {
    MeetingHost host(hello, std::move(bound), settings.deadline, settings.progress_ms, settings.check);
    MeetingOutcome outcome = host.run();
    if (outcome.code == DSC_OK) listener = host.take_listener();
    return outcome;
  }
  int error = 0;
  if (UniqueFd connection = connect_abstract(name, error))
    return follow_meeting(std::move(connection), hello, settings.deadline, settings.check);
  MeetingOutcome outcome;
  outcome.code = DSC_IN_PROGRESS;
  outcome.text = error == EAGAIN
                     ? "too many processes are waiting at this address"
                     : "a process uses the socket name of this address, but does not accept connections";
  return outcome;
}

MeetingOutcome attempt_until_deadline(const MeetingSettings& settings, const Hello& hello,
                                      UniqueFd& listener) {
  const std::string name = meeting_name(settings);
  for (;;) {
    MeetingOutcome outcome = attempt(settings, hello, name, listener);
    if (outcome.code != DSC_IN_PROGRESS) return outcome;
    if (settings.check) settings.check();
    sleep_until({std::min(settings.deadline.ns, Deadline::after_ms(kConnectPauseMs).ns)});
    if (!settings.deadline.passed()) continue;
    outcome.code = DSC_ERR_TIMEOUT;
    return outcome;
  }
}

}  // namespace

std::string meeting_name(const MeetingSettings& settings) {
  const std::string key = std::to_string(::geteuid()) + '\n' + settings.master_addr + '\n' +
                          std::to_string(settings.master_port) + '\n' + settings.job_id;
  // The second hash starts from the first one. Together they give 128 bits, so that two jobs do not get the
  // same name by chance.
  Nonce bits;
  uint64_t hash = kFnvStart;
  for (size_t half = 0; half < 2; ++half) {
    hash = fnv1a(key, hash);
    for (size_t i = 0; i < 8; ++i) bits[8 * half + i] = static_cast<uint8_t>(hash >> (8 * i));
  }
  return "dsc-meet-" + hex(bits);
}

MeetingResult meet(const MeetingSettings& settings) {
  check_settings(settings);
  const Hello hello = hello_of(settings);
  MeetingResult result;
  MeetingOutcome outcome =
      settings.world_size == 1 ? alone(hello) : attempt_until_deadline(settings, hello, result.listener);
  if (outcome.code == DSC_ERR_TIMEOUT)  // ranks of another user have another name for the meeting
    outcome.text +=
        "; only processes of user id " + std::to_string(::geteuid()) + ", as this one, can join this world";
  if (outcome.code != DSC_OK) fail_meeting(outcome.code, outcome.text, outcome.ranks, settings);
  result.nonce = outcome.nonce;
  result.held = {outcome.nonce, settings.world_size, outcome.host_pid, false};
  result.members = std::move(outcome.members);
  result.layout = layout_of(result.members);
  return result;
}

void answer_late_comer(int listen_fd, const HeldName& held) {
  constexpr int kMostAtOnce = 64;
  MeetingOutcome outcome;
  outcome.code = held.closing ? DSC_IN_PROGRESS : DSC_ERR_ADDR_IN_USE;
  outcome.text = held.closing
                     ? "the world of pid " + std::to_string(held.pid) + " is ending"
                     : "a job of " + std::to_string(held.world_size) +
                           " ranks has already started at this address (pid " + std::to_string(held.pid) +
                           ", incarnation " + hex(held.nonce) + "); choose another MASTER_PORT or DSC_JOB_ID";
  const std::string bytes = encode_outcome(outcome);
  for (int i = 0; i < kMostAtOnce; ++i) {
    int error = 0;
    const UniqueFd connection = accept_connection(listen_fd, error);
    if (!connection && error != ECONNABORTED && error != EINTR) return;
    if (!connection) continue;
    char hello[sizeof(HelloWire)];
    // Reads the hello, because closing a socket with an unread message would reset the connection and lose
    // the answer.
    receive_message(connection.get(), hello, sizeof hello);
    send_message(connection.get(), bytes.data(), bytes.size());
  }
}

}  // namespace dsc
