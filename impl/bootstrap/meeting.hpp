// The meeting of the ranks of one host at an abstract socket. The first rank that binds the name hosts the
// meeting. It collects a hello from every rank, and sends the same outcome to all of them: a table of members
// or an error. For several hosts see store_meeting.hpp.
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

// The settings with which a rank takes part in a meeting.
struct MeetingSettings {
  std::string master_addr;
  int32_t master_port = 0;
  std::string job_id;
  int32_t rank = 0;
  int32_t world_size = 1;
  int32_t local_rank = -1;  // -1 means that it is computed from the table of members
  uint32_t library_version = 0;
  std::string host;       // result of host_identity()
  std::string host_name;  // name of this host for errors; empty if all ranks are on one host
  std::string endpoint;   // Endpoint::name() of this process
  std::string config;     // "key=value;key=value", the settings that must be equal on all ranks
  Nonce latest_world{};  // the latest world of the job to which this process belonged; zero if there was none
  Deadline deadline = Deadline::never();
  int64_t progress_ms = 10'000;  // interval in which missing ranks are logged
  // Called at least every 50 ms while waiting; may throw to end the wait.
  std::function<void()> check = nullptr;
};

// Describes the owner of a name. Ranks that arrive after the world has formed get this description.
struct HeldName {
  Nonce nonce{};
  int32_t world_size = 0;
  int64_t pid = 0;
  bool closing = false;  // whether the world is ending, so that the name will soon be free
};

// The outcome of a meeting, as one rank receives it.
struct MeetingResult {
  Nonce nonce{};                // different for every world, even of the same job
  std::vector<Member> members;  // ranks of this host, in rank order
  UniqueFd listener;  // set on only one rank; it keeps the name and must be served with answer_late_comer()
  HeldName held;
  JobLayout layout;  // all ranks of the job; `members` are only those of this host
};

// Returns the name of the abstract socket at which ranks with these settings meet.
std::string meeting_name(const MeetingSettings& settings);

// Blocks until all ranks have arrived. A world of one rank has no meeting and holds no name. All ranks that
// arrived get the same error: TIMEOUT with the missing ranks, CONFIG, VERSION, UNSUPPORTED for several hosts,
// ADDR_IN_USE, or PROTOCOL if another program holds the name.
MeetingResult meet(const MeetingSettings& settings);

// Returns the hello of this process.
Hello hello_of(const MeetingSettings& settings);
// Throws an error of the meeting. Its text begins with this rank and the address of the meeting.
[[noreturn]] void fail_meeting(dsc_result_t code, const std::string& text, const RankList& ranks,
                               const MeetingSettings& settings);

// Answers all processes that wait at the name of a world that has already formed. Must be called when
// listen_fd is readable. Never blocks.
void answer_late_comer(int listen_fd, const HeldName& held);

}  // namespace dsc
