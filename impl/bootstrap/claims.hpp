// What the ranks said when they came to the meeting, and what follows from it. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dsc/types.h"

namespace dsc {

// What one process says about itself.
struct Claim {
  int32_t rank = -1;
  int32_t world_size = 0;
  int32_t local_rank = -1;  // -1: to be derived
  int64_t pid = 0;
  uint32_t wire_version = 0;
  uint32_t library_version = 0;
  uint64_t config_hash = 0;
  std::string config;  // "key=value;key=value", possibly cut; config_hash is of the whole
  std::string host;
  std::string endpoint;
  std::string place;  // the host's name in errors; empty where there is only one host
};

// One rank of a world that formed.
struct Member {
  int32_t rank;
  int32_t local_rank;
  int64_t pid;
  std::string host;
  std::string endpoint;    // name of its process's Endpoint
  std::string place = "";  // as Claim::place
};

struct Problem {
  dsc_result_t code;
  std::string text;
};

// "rank 3 (pid 4711)", "rank 3 (pid 4711 on node7)"
std::string describe(const Claim& claim);

// "1-3, 7" for {7, 1, 2, 3}.
std::string rank_list(std::vector<int32_t> ranks);

// How many claims a verdict needs: the largest world size that was claimed.
int32_t expected_claims(const std::vector<Claim>& claims);

std::vector<int32_t> missing_ranks(const std::vector<Claim>& claims);

enum class Hosts { kOne, kMany };  // that a meeting can bring together

// Why these processes can never form one world, whoever else comes: versions, world sizes, ranks, settings,
// hosts.
std::optional<Problem> find_conflict(const std::vector<Claim>& claims, Hosts hosts);

// The members in rank order, of claims that are complete and without conflict. Derives local ranks that are
// -1.
std::vector<Member> make_table(std::vector<Claim> claims);

}  // namespace dsc
