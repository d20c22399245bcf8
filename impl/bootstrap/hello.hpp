// What ranks report about themselves when they meet, and the decision that follows from these reports. The
// functions have no side effects.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/failure.hpp"
#include "dsc/types.h"

namespace dsc {

inline constexpr int64_t kNoDeadlineMs = int64_t{1} << 40;

// The properties of one rank, as its process reports them.
struct Hello {
  int32_t rank = -1;
  int32_t world_size = 0;
  int32_t local_rank = -1;  // -1 means that it is computed from the ranks of the same host
  int64_t pid = 0;
  uint32_t wire_version = 0;
  uint32_t library_version = 0;
  uint64_t config_hash = 0;
  std::string config;  // "key=value;key=value", possibly cut; config_hash is the hash of the full text
  std::string host;
  std::string endpoint;
  std::string host_name;     // name of the host for errors; empty if only one host takes part
  int64_t remaining_ms = 0;  // time until the deadline of the rank; kNoDeadlineMs or more if there is none
};

// One rank of a world after all ranks have met.
struct Member {
  int32_t rank;
  int32_t local_rank;
  int64_t pid;
  std::string host;
  std::string endpoint;        // name of the Endpoint of the rank's process
  std::string host_name = "";  // same as Hello::host_name
};

// The reason why a world cannot be formed.
struct Problem {
  dsc_result_t code;
  std::string text;
  RankList ranks = {};  // ranks at fault
};

// Returns "rank 3 (pid 4711)" or "rank 3 (pid 4711 on node7)".
std::string describe(const Hello& hello);

// Returns "1-3, 7" for {7, 1, 2, 3}.
std::string rank_list(std::vector<int32_t> ranks);

// Returns how many hellos are needed for a decision: the largest world size in any hello.
int32_t expected_hellos(const std::vector<Hello>& hellos);

std::vector<int32_t> missing_ranks(const std::vector<Hello>& hellos);

enum class Hosts { kOne, kMany };  // whether the ranks of a meeting are on one host or may be on several

// Returns why these processes can never form a world, even if more ranks arrive: they disagree in their
// versions, world sizes, ranks, settings or hosts.
std::optional<Problem> find_conflict(const std::vector<Hello>& hellos, Hosts hosts);

// Returns the members in rank order. All hellos must be present and without conflict. Computes local ranks
// that are -1.
std::vector<Member> make_table(std::vector<Hello> hellos);

}  // namespace dsc
