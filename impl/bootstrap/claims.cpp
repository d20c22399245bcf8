#include "bootstrap/claims.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <string_view>

namespace dsc {
namespace {

std::string process_of(const Claim& claim) {
  return "pid " + std::to_string(claim.pid) + (claim.place.empty() ? "" : " on " + claim.place);
}

std::string version_text(const Claim& claim) {
  return std::to_string(claim.library_version) + " (wire " + std::to_string(claim.wire_version) + ")";
}

using Value = std::function<std::string(const Claim&)>;

// Returns a text such as "4 (ranks 0-2), 8 (rank 3)" if the claims differ in the value; empty if all agree.
std::string differing(const std::vector<Claim>& claims, const Value& value) {
  std::map<std::string, std::vector<int32_t>> ranks_by_value;
  for (const Claim& claim : claims) ranks_by_value[value(claim)].push_back(claim.rank);
  if (ranks_by_value.size() < 2) return {};
  std::string text;
  for (const auto& [what, ranks] : ranks_by_value)
    text += (text.empty() ? "" : ", ") + what + (ranks.size() == 1 ? " (rank " : " (ranks ") +
            rank_list(ranks) + ")";
  return text;
}

std::map<std::string, std::string> parse_config(std::string_view text) {
  std::map<std::string, std::string> settings;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(';'));
    const size_t equals = std::min(item.find('='), item.size());
    if (!item.empty())
      settings[std::string(item.substr(0, equals))] = item.substr(std::min(equals + 1, item.size()));
    text.remove_prefix(std::min(item.size() + 1, text.size()));
  }
  return settings;
}

std::string differing_settings(const std::vector<Claim>& claims) {
  std::map<std::string, std::string> keys;  // all keys that occur in any claim
  for (const Claim& claim : claims) keys.merge(parse_config(claim.config));
  std::string text;
  for (const auto& entry : keys) {
    const std::string difference = differing(claims, [&key = entry.first](const Claim& claim) {
      const auto settings = parse_config(claim.config);
      const auto found = settings.find(key);
      return found == settings.end() ? std::string("unset") : found->second;
    });
    if (!difference.empty()) text += (text.empty() ? "" : "; ") + entry.first + ": " + difference;
  }
  return text.empty() ? "in a part that was too long to be sent" : text;
}

// Finds a rank outside of its world, or one that two processes claim.
std::optional<Problem> find_rank_conflict(const std::vector<Claim>& claims) {
  std::map<int32_t, const Claim*> by_rank;
  for (const Claim& claim : claims) {
    if (claim.rank < 0 || claim.rank >= claim.world_size)
      return Problem{DSC_ERR_CONFIG, describe(claim) + " is outside its world: expected 0 to " +
                                         std::to_string(claim.world_size - 1)};
    const auto [other, first] = by_rank.emplace(claim.rank, &claim);
    if (!first)
      return Problem{DSC_ERR_CONFIG,
                     "two processes claim rank " + std::to_string(claim.rank) + ": " +
                         process_of(*other->second) + " and " + process_of(claim) +
                         "; if they are two jobs, give them different MASTER_PORT or DSC_JOB_ID"};
  }
  return std::nullopt;
}

}  // namespace

std::string describe(const Claim& claim) {
  return "rank " + std::to_string(claim.rank) + " (" + process_of(claim) + ")";
}

std::string rank_list(std::vector<int32_t> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text;
  for (size_t first = 0; first < ranks.size();) {
    size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(ranks[first]);
    if (last > first) text += (last == first + 1 ? ", " : "-") + std::to_string(ranks[last]);
    first = last + 1;
  }
  return text;
}

int32_t expected_claims(const std::vector<Claim>& claims) {
  int32_t expected = 1;
  for (const Claim& claim : claims) expected = std::max(expected, claim.world_size);
  return expected;
}

std::vector<int32_t> missing_ranks(const std::vector<Claim>& claims) {
  std::vector<bool> came(static_cast<size_t>(expected_claims(claims)));
  for (const Claim& claim : claims)
    if (claim.rank >= 0 && static_cast<size_t>(claim.rank) < came.size())
      came[static_cast<size_t>(claim.rank)] = true;
  std::vector<int32_t> missing;
  for (size_t rank = 0; rank < came.size(); ++rank)
    if (!came[rank]) missing.push_back(static_cast<int32_t>(rank));
  return missing;
}

// Versions are compared first, because other fields of another version may be meaningless.
std::optional<Problem> find_conflict(const std::vector<Claim>& claims, Hosts hosts) {
  std::string text = differing(claims, version_text);
  if (!text.empty()) return Problem{DSC_ERR_VERSION, "different versions of libdsc meet: " + text};
  text = differing(claims, [](const Claim& claim) { return std::to_string(claim.world_size); });
  if (!text.empty()) return Problem{DSC_ERR_CONFIG, "world sizes differ: " + text};
  if (auto problem = find_rank_conflict(claims)) return problem;
  const auto other_config = [&](const Claim& claim) {
    return claim.config_hash != claims.front().config_hash;
  };
  if (std::any_of(claims.begin(), claims.end(), other_config))
    return Problem{DSC_ERR_CONFIG, "settings differ: " + differing_settings(claims)};
  text = differing(claims, [](const Claim& claim) { return claim.host; });
  if (!text.empty() && hosts == Hosts::kOne)
    return Problem{
        DSC_ERR_CONFIG,
        "the ranks meet as those of one host, but the hosts are: " + text +
            "; where LOCAL_WORLD_SIZE and LOCAL_RANK count each host's own, they meet through TCP"};
  return std::nullopt;
}

std::vector<Member> make_table(std::vector<Claim> claims) {
  std::sort(claims.begin(), claims.end(), [](const Claim& a, const Claim& b) { return a.rank < b.rank; });
  std::map<std::string, int32_t> ranks_on_host;
  std::vector<Member> members;
  members.reserve(claims.size());
  for (const Claim& claim : claims) {
    const int32_t position = ranks_on_host[claim.host]++;
    const int32_t local_rank = claim.local_rank >= 0 ? claim.local_rank : position;
    members.push_back({claim.rank, local_rank, claim.pid, claim.host, claim.endpoint, claim.place});
  }
  return members;
}

}  // namespace dsc
