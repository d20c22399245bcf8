// How the ranks of one host find each other: all come to one abstract socket. The first to bind it hosts: it
// collects what every rank says about itself and tells everyone the same verdict, a table of members or an
// error. Those of several hosts: store_meeting.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/random.hpp"
#include "bootstrap/claims.hpp"
#include "bootstrap/job_layout.hpp"

namespace dsc {

struct MeetingSettings {
  std::string master_addr;
  int32_t master_port = 0;
  std::string job_id;
  int32_t rank = 0;
  int32_t world_size = 1;
  int32_t local_rank = -1;  // -1: derived from the table
  uint32_t library_version = 0;
  std::string host;      // host_identity()
  std::string place;     // of this host, for errors; empty if the ranks of one host meet
  std::string endpoint;  // Endpoint::name() of this process
  std::string config;    // "key=value;key=value": what must be equal on all ranks
  Deadline deadline = Deadline::never();
  int64_t progress_ms = 10'000;           // how often the log names who is missing
  std::function<void()> check = nullptr;  // called at least every 50 ms while waiting; may throw to give up
};

// Who holds a name, as told to those who come too late.
struct HeldName {
  Nonce nonce{};
  int32_t world_size = 0;
  int64_t pid = 0;
  bool closing = false;  // the world is ending: the name will soon be free
};

struct MeetingResult {
  Nonce nonce{};                // names this incarnation of the world
  std::vector<Member> members;  // of this host, in rank order
  UniqueFd listener;            // on one rank only: keeps the name; serve it with answer_late_comer()
  HeldName held;
  JobLayout layout;  // of the whole job, where `members` are only those of this host
};

// The abstract socket at which ranks with these settings meet.
std::string meeting_name(const MeetingSettings& settings);

// Blocks until all ranks came. A world of one rank meets nobody and holds no name. The error, the same on
// every rank that came, is TIMEOUT (naming the missing ranks), CONFIG, VERSION, UNSUPPORTED (several hosts),
// ADDR_IN_USE or PROTOCOL (something else holds the name).
MeetingResult meet(const MeetingSettings& settings);

// What this process says about itself.
Claim claim_of(const MeetingSettings& settings);
// Throws an error of the meeting, saying which rank came where.
[[noreturn]] void fail_meeting(dsc_result_t code, const std::string& text, const MeetingSettings& settings);

// Answers everybody who waits at the name of a world that formed. Never blocks; call when listen_fd is
// readable.
void answer_late_comer(int listen_fd, const HeldName& held);

}  // namespace dsc
