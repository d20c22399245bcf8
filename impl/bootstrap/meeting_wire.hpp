// The two messages of a meeting. Both processes are on one host, so numbers need no conversion. Sizes are
// fixed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.hpp"
#include "bootstrap/hello.hpp"

namespace dsc {

inline constexpr uint64_t kMeetingMagic = 0x7465656d2d637364u;  // "dsc-meet" in memory
inline constexpr uint32_t kMeetingVersion = 2;
inline constexpr int32_t kMaxRanks = 1024;  // limit for one host, with which the table fits into one message
// Limit for a job, with which all hellos fit into a store.
inline constexpr int32_t kMaxJobRanks = 65'536;
inline constexpr size_t kConfigBytes = 512;

// The fields up to `pid` have the same offsets in all versions, so that processes of different versions can
// name each other in errors.
struct HelloWire {
  uint64_t magic;
  uint32_t wire_version;
  uint32_t library_version;
  int32_t rank;
  int32_t world_size;
  int64_t pid;
  int64_t remaining_ms;  // time until the deadline of this rank
  uint64_t config_hash;
  int32_t local_rank;
  char host[64];
  char endpoint[64];
  char config[kConfigBytes];
  char host_name[64];
  uint32_t reserved;
};
inline constexpr size_t kHelloPrefixBytes = 32;
static_assert(offsetof(HelloWire, remaining_ms) == kHelloPrefixBytes);
static_assert(sizeof(HelloWire) == 32 + 16 + 4 + 64 + 64 + kConfigBytes + 64 + 4, "no hidden padding");

// All fields have the same offsets in all versions. If `code` is DSC_OK, world_size MemberWires follow.
// Otherwise the ranks at fault follow, as int32_t.
struct OutcomeWire {
  uint64_t magic;
  uint32_t wire_version;
  int32_t code;  // dsc_result_t; DSC_IN_PROGRESS asks the rank to try again a little later
  uint8_t nonce[16];
  int32_t world_size;
  int32_t host_pid;
  char text[440];
};
static_assert(sizeof(OutcomeWire) == 480, "no hidden padding");

// One row of the table of members.
struct MemberWire {
  int32_t rank;
  int32_t local_rank;
  int64_t pid;
  char host[64];
  char endpoint[64];
};
static_assert(sizeof(MemberWire) == 144, "no hidden padding");

inline constexpr size_t kMaxOutcomeBytes = sizeof(OutcomeWire) + size_t{kMaxRanks} * sizeof(MemberWire);

// The decision of a meeting, made by its host.
struct MeetingOutcome {
  dsc_result_t code = DSC_OK;  // DSC_IN_PROGRESS asks the rank to try again
  std::string text;
  RankList ranks;  // ranks at fault
  int64_t host_pid = 0;
  Nonce nonce{};
  std::vector<Member> members;
};

std::string encode_hello(const Hello& hello);
// Returns nullopt if the bytes are malformed. If the hello is of another version, sets only the first fields.
std::optional<Hello> decode_hello(const void* data, size_t bytes);

// These encode and decode the ranks at fault, up to the number that an error record can hold.
std::string encode_ranks(const RankList& ranks);
RankList decode_ranks(std::string_view bytes);

// These encode and decode only the table of members. An incomplete entry at the end is ignored.
std::string encode_members(const std::vector<Member>& members);
std::vector<Member> decode_members(std::string_view bytes);

std::string encode_outcome(const MeetingOutcome& outcome);
// Returns an outcome of PROTOCOL if the bytes are malformed, and of VERSION if their version is unknown.
MeetingOutcome decode_outcome(const void* data, size_t bytes);

}  // namespace dsc
