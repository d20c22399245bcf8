// What the processes of a job on several hosts tell each other, as records of one log that all of them read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "control/failure.hpp"

namespace dsc {

// What was said first about a rank holds.
struct RankGone {
  int32_t rank = 0;
  dsc_result_t code = DSC_ERR_PEER_DEAD;  // or PEER_LEFT, PEER_STALLED
  int64_t pid = 0;                        // 0: not known
};

// Nothing was heard of it for a while, or something is again. It has not been given up.
struct RankQuiet {
  int32_t rank = 0;
  bool quiet = true;
};

struct GroupFailed {
  uint64_t group = 0;
  Failure cause;
};

// Some ranks are to say what they did last in a group, or what the question says.
struct LatestAsked {
  uint64_t number = 0;  // of the question
  uint64_t group = 0;
  std::vector<int32_t> ranks;
  std::string question = {};
};

using JobEvent = std::variant<RankGone, RankQuiet, GroupFailed, LatestAsked>;

inline constexpr size_t kMostCauseRanks = 64;
inline constexpr size_t kMostCauseText = 512;
inline constexpr size_t kMostAskedRanks = 64;
inline constexpr size_t kMostQuestion = 64;  // bytes

// Longer lists and texts are cut.
std::string encode(const Failure& cause);
// Nothing if the bytes are none, or longer than encode() makes them.
std::optional<Failure> decode_failure(std::string_view bytes);

// One record of the log.
std::string encode(const JobEvent& event);

struct JobEvents {
  std::vector<JobEvent> events;
  size_t refused = 0;  // records that are none of these, and what cannot be told apart
};
// Of whole records; those that begin at `end` or behind it are left out. Work and memory are bounded by the
// number of bytes.
JobEvents decode_events(std::string_view records, size_t end = SIZE_MAX);

// "rank 3 (pid 1234) died"
std::string describe(const RankGone& gone);

}  // namespace dsc
