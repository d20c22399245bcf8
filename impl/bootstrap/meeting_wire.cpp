#include "bootstrap/meeting_wire.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/fixed_text.hpp"

namespace dsc {
namespace {

template <size_t N>
void put_text(char (&field)[N], const std::string& text) {
  const size_t bytes = std::min(text.size(), N - 1);
  std::memcpy(field, text.data(), bytes);
  std::memset(field + bytes, 0, N - bytes);
}

template <class T>
void append(std::string& bytes, const T& wire) {
  bytes.append(reinterpret_cast<const char*>(&wire), sizeof wire);
}

std::string first_bytes(const void* data, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(bytes, 8); ++i) {
    char digits[4];
    std::snprintf(digits, sizeof digits, " %02x", static_cast<const unsigned char*>(data)[i]);
    text += digits;
  }
  return text;
}

MeetingOutcome problem(dsc_result_t code, std::string text) {
  MeetingOutcome outcome;
  outcome.code = code;
  outcome.text = std::move(text);
  return outcome;
}

Member decode_member(const char* data) {
  MemberWire wire;
  std::memcpy(&wire, data, sizeof wire);
  return {wire.rank, wire.local_rank, wire.pid, bounded_text(wire.host), bounded_text(wire.endpoint), ""};
}

}  // namespace

std::string encode_hello(const Hello& hello) {
  HelloWire wire{};
  wire.magic = kMeetingMagic;
  wire.wire_version = hello.wire_version;
  wire.library_version = hello.library_version;
  wire.rank = hello.rank;
  wire.world_size = hello.world_size;
  wire.pid = hello.pid;
  wire.remaining_ms = hello.remaining_ms;
  wire.config_hash = hello.config_hash;
  wire.local_rank = hello.local_rank;
  put_text(wire.host, hello.host);
  put_text(wire.endpoint, hello.endpoint);
  put_text(wire.config, hello.config);
  put_text(wire.host_name, hello.host_name);
  std::string bytes;
  append(bytes, wire);
  return bytes;
}

// If the peer has another version, reads only the fields that all versions share. Numbers are clamped,
// because they come from another process.
std::optional<Hello> decode_hello(const void* data, size_t bytes) {
  HelloWire wire{};
  if (bytes < kHelloPrefixBytes) return std::nullopt;
  std::memcpy(&wire, data, std::min(bytes, sizeof wire));
  if (wire.magic != kMeetingMagic) return std::nullopt;
  Hello hello{};
  hello.wire_version = wire.wire_version;
  hello.library_version = wire.library_version;
  hello.rank = wire.rank;
  hello.world_size = std::clamp(wire.world_size, 1, kMaxJobRanks);
  hello.pid = wire.pid;
  hello.remaining_ms = kNoDeadlineMs;
  if (wire.wire_version != kMeetingVersion) return hello;
  if (bytes != sizeof wire) return std::nullopt;
  hello.remaining_ms = std::max<int64_t>(wire.remaining_ms, 0);
  hello.local_rank = wire.local_rank;
  hello.config_hash = wire.config_hash;
  hello.host = bounded_text(wire.host);
  hello.endpoint = bounded_text(wire.endpoint);
  hello.config = bounded_text(wire.config);
  hello.host_name = bounded_text(wire.host_name);
  return hello;
}

std::string encode_ranks(const RankList& ranks) {
  std::string bytes;
  for (const int32_t rank : ranks) append(bytes, rank);
  return bytes;
}

RankList decode_ranks(std::string_view bytes) {
  RankList ranks;
  for (; bytes.size() >= sizeof(int32_t); bytes.remove_prefix(sizeof(int32_t))) {
    int32_t rank = 0;
    std::memcpy(&rank, bytes.data(), sizeof rank);
    ranks.push_back(rank);
  }
  ranks.bound_to(kMaxJobRanks);
  return ranks;
}

std::string encode_members(const std::vector<Member>& members) {
  std::string bytes;
  for (const Member& member : members) {
    MemberWire entry{};
    entry.rank = member.rank;
    entry.local_rank = member.local_rank;
    entry.pid = member.pid;
    put_text(entry.host, member.host);
    put_text(entry.endpoint, member.endpoint);
    append(bytes, entry);
  }
  return bytes;
}

std::vector<Member> decode_members(std::string_view bytes) {
  std::vector<Member> members;
  for (; bytes.size() >= sizeof(MemberWire); bytes.remove_prefix(sizeof(MemberWire)))
    members.push_back(decode_member(bytes.data()));
  return members;
}

std::string encode_outcome(const MeetingOutcome& outcome) {
  OutcomeWire wire{};
  wire.magic = kMeetingMagic;
  wire.wire_version = kMeetingVersion;
  wire.code = outcome.code;
  wire.world_size = static_cast<int32_t>(outcome.members.size());
  wire.host_pid = static_cast<int32_t>(outcome.host_pid);
  std::copy(outcome.nonce.begin(), outcome.nonce.end(), wire.nonce);
  put_text(wire.text, outcome.text);
  std::string bytes;
  append(bytes, wire);
  return bytes + (outcome.code == DSC_OK ? encode_members(outcome.members) : encode_ranks(outcome.ranks));
}

MeetingOutcome decode_outcome(const void* data, size_t bytes) {
  OutcomeWire wire{};
  if (bytes >= sizeof wire) std::memcpy(&wire, data, sizeof wire);
  if (wire.magic != kMeetingMagic)
    return problem(DSC_ERR_PROTOCOL, "a process answers at this address, but is not libdsc (got " +
                                         std::to_string(bytes) + " bytes:" + first_bytes(data, bytes) + ")");
  MeetingOutcome outcome;
  outcome.code = wire.code;
  outcome.text = bounded_text(wire.text);
  outcome.host_pid = wire.host_pid;
  if (outcome.code != DSC_OK) {  // an outcome with an error has the same form in all versions
    outcome.ranks = decode_ranks({static_cast<const char*>(data) + sizeof wire, bytes - sizeof wire});
    return outcome;
  }
  if (wire.wire_version != kMeetingVersion)
    return problem(DSC_ERR_VERSION, "the process that collects the ranks uses wire version " +
                                        std::to_string(wire.wire_version) + ", expected " +
                                        std::to_string(kMeetingVersion));
  const bool possible = wire.world_size > 0 && wire.world_size <= kMaxRanks;
  if (!possible || bytes != sizeof wire + static_cast<size_t>(wire.world_size) * sizeof(MemberWire))
    return problem(DSC_ERR_PROTOCOL, "the result of the start-up has " + std::to_string(bytes) +
                                         " bytes, which is not the size of a result for " +
                                         std::to_string(wire.world_size) + " ranks");
  std::copy(std::begin(wire.nonce), std::end(wire.nonce), outcome.nonce.begin());
  outcome.members = decode_members({static_cast<const char*>(data) + sizeof wire, bytes - sizeof wire});
  for (int32_t rank = 0; rank < wire.world_size; ++rank)
    if (const Member& member = outcome.members[static_cast<size_t>(rank)]; member.rank != rank)
      return problem(DSC_ERR_PROTOCOL,
                     "entry " + std::to_string(rank) + " of the received table of ranks is for rank " +
                         std::to_string(member.rank) + ", expected rank " + std::to_string(rank));
  return outcome;
}

}  // namespace dsc
