// The meeting of the ranks of one host at an abstract socket. The first rank to bind the name hosts the
// meeting: it collects a hello from every rank and sends all of them the same outcome, which is a table of
// members or an error. For several hosts see store_meeting.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/random.hpp"
#include "bootstrap/hello.hpp"
#include "bootstrap/job_layout.hpp"

namespace dsc {

// The properties of a rank that takes part in a meeting.
struct MeetingSettings {
  std::string master_addr;
  int32_t master_port = 0;
  std::string job_id;
  int32_t rank = 0;
  int32_t world_size = 1;
  int32_t local_rank = -1;  // -1: derived from the table
  uint32_t library_version = 0;
  std::string host;       // result of host_identity()
  std::string host_name;  // name of this host for errors; empty if only ranks of one host meet
  std::string endpoint;   // Endpoint::name() of this process
  std::string config;     // "key=value;key=value": settings that must be equal on all ranks
  Nonce latest_world{};   // the latest world of the job that this process was in; zero if there was none
  Deadline deadline = Deadline::never();
  int64_t progress_ms = 10'000;           // interval in which missing ranks are logged
  std::function<void()> check = nullptr;  // called at least every 50 ms while waiting; may throw to give up
};

// The owner of a name, as reported to ranks that arrive after the world has formed.
struct HeldName {
  Nonce nonce{};
  int32_t world_size = 0;
  int64_t pid = 0;
  bool closing = false;  // the world is ending: the name will soon be free
};

// The outcome of a meeting, on one rank.
struct MeetingResult {
  Nonce nonce{};                // identifies this incarnation of the world
  std::vector<Member> members;  // ranks of this host, in rank order
  UniqueFd listener;  // set on one rank only: holds the name and must be served with answer_late_comer()
  HeldName held;
  JobLayout layout;  // the whole job, while `members` are only those of this host
};

// Returns the name of the abstract socket at which ranks with these settings meet.
std::string meeting_name(const MeetingSettings& settings);

// Blocks until all ranks have arrived. A world of one rank has no meeting and holds no name. Errors are equal
// on all ranks that arrived: TIMEOUT (with the missing ranks), CONFIG, VERSION, UNSUPPORTED (several hosts),
// ADDR_IN_USE or PROTOCOL (a different program holds the name).
MeetingResult meet(const MeetingSettings& settings);

// Returns the hello of this process.
Hello hello_of(const MeetingSettings& settings);
// Throws an error of the meeting, prefixed with this rank and the address of the meeting.
[[noreturn]] void fail_meeting(dsc_result_t code, const std::string& text, const RankList& ranks,
                               const MeetingSettings& settings);

// Answers all processes that wait at the name of a world that has formed. Call it when listen_fd is readable;
// it never blocks.
void answer_late_comer(int listen_fd, const HeldName& held);

}  // namespace dsc
