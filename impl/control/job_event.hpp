// Events that the processes of a job on several hosts exchange. They are records of one log, which all
// processes read in the same order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.hpp"

namespace dsc {

// The end of a rank. The first event about the end of a rank is final.
struct RankGone {
  int32_t rank = 0;
  dsc_result_t code = DSC_ERR_PEER_DEAD;  // PEER_DEAD, PEER_LEFT or PEER_STALLED
  int64_t pid = 0;                        // 0 if unknown
  int64_t silent_ms = 0;                  // for how long it had not run; 0 if unknown
};

// The heartbeats of a rank have been missing for a while, or have resumed. The rank is still part of the job.
struct RankUnresponsive {
  int32_t rank = 0;
  bool unresponsive = true;
};

// A group has failed; `cause` is its first cause.
struct GroupFailed {
  uint64_t group = 0;
  Failure cause;
};

// Asks ranks a question. An empty question asks what the rank did last in a group.
struct LatestAsked {
  uint64_t number = 0;  // identifies the request
  uint64_t group = 0;
  std::vector<int32_t> ranks;
  std::string question = {};
};

// A rank takes part in no further operation of a group. Ranks that have no connection to it learn this from
// the event.
struct GroupLeft {
  uint64_t group = 0;
  int32_t rank = 0;        // rank in the group
  bool finalizes = false;  // whether it leaves because it finalizes the world
};

using JobEvent = std::variant<RankGone, RankUnresponsive, GroupFailed, LatestAsked, GroupLeft>;

inline constexpr size_t kMostAskedRanks = 64;
inline constexpr size_t kMostQuestion = 64;  // in bytes

std::string encode(const Failure& cause);
// Returns nullopt if the bytes are malformed.
std::optional<Failure> decode_failure(std::string_view bytes);

// Encodes one record of the log. Lists and texts that are too long are cut.
std::string encode(const JobEvent& event);

// The result of decoding a part of the log.
struct JobEvents {
  std::vector<JobEvent> events;
  size_t refused = 0;  // number of unknown or malformed records
};
// Decodes complete records. Ignores records that begin at `end` or later. The time and memory needed are
// bounded by the number of bytes.
JobEvents decode_events(std::string_view records, size_t end = SIZE_MAX);

// Returns a text such as "rank 3 (pid 1234) died".
std::string describe(const RankGone& gone);
// Returns the failure of operations that wait for the rank that has left.
Failure failure_of(const GroupLeft& left) noexcept;

}  // namespace dsc
