#include "bootstrap/hello.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <string_view>

namespace dsc {
namespace {

std::string process_of(const Hello& hello) {
  return "pid " + std::to_string(hello.pid) + (hello.host_name.empty() ? "" : " on " + hello.host_name);
}

std::string version_text(const Hello& hello) {
  const uint32_t version = hello.library_version;
  return std::to_string(version >> 16) + "." + std::to_string(version >> 8 & 0xff) + "." +
         std::to_string(version & 0xff) + " with wire version " + std::to_string(hello.wire_version);
}

using Value = std::function<std::string(const Hello&)>;

// Returns a text such as "4 (ranks 0-2), 8 (rank 3)" if the hellos differ in this value, and an empty text if
// they agree.
std::string differing(const std::vector<Hello>& hellos, const Value& value) {
  std::map<std::string, std::vector<int32_t>> ranks_by_value;
  for (const Hello& hello : hellos) ranks_by_value[value(hello)].push_back(hello.rank);
  if (ranks_by_value.size() < 2) return {};
  std::string text;
  for (const auto& [what, ranks] : ranks_by_value)
    text += (text.empty() ? "" : ", ") + what + (ranks.size() == 1 ? " (rank " : " (ranks ") +
            rank_list(ranks) + ")";
  return text;
}

// Returns the ranks whose value differs from that of the majority. If several values are equally frequent,
// the value of the lowest rank is used instead.
RankList odd_ones(const std::vector<Hello>& hellos, const Value& value) {
  std::map<std::string, size_t> counts;
  for (const Hello& hello : hellos) ++counts[value(hello)];
  std::string usual = value(*std::ranges::min_element(hellos, {}, &Hello::rank));
  for (const auto& [what, count] : counts)
    if (count > counts[usual]) usual = what;
  std::vector<int32_t> odd;
  for (const Hello& hello : hellos)
    if (value(hello) != usual) odd.push_back(hello.rank);
  std::ranges::sort(odd);
  return odd;
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

std::string differing_settings(const std::vector<Hello>& hellos) {
  std::map<std::string, std::string> keys;  // the union of the keys of all hellos
  for (const Hello& hello : hellos) keys.merge(parse_config(hello.config));
  std::string text;
  for (const auto& entry : keys) {
    const std::string difference = differing(hellos, [&key = entry.first](const Hello& hello) {
      const auto settings = parse_config(hello.config);
      const auto found = settings.find(key);
      return found == settings.end() ? std::string("unset") : found->second;
    });
    if (!difference.empty()) text += (text.empty() ? "" : "; ") + entry.first + ": " + difference;
  }
  return text.empty() ? "the difference is in a part that was too long to be sent" : text;
}

// Finds a rank that is outside its world, or that two processes claim.
std::optional<Problem> find_rank_conflict(const std::vector<Hello>& hellos) {
  std::map<int32_t, const Hello*> by_rank;
  for (const Hello& hello : hellos) {
    if (hello.rank < 0 || hello.rank >= hello.world_size)
      return Problem{
          DSC_ERR_CONFIG,
          describe(hello) + " is outside its world: expected 0 to " + std::to_string(hello.world_size - 1),
          {hello.rank}};
    const auto [other, first] = by_rank.emplace(hello.rank, &hello);
    if (!first)
      return Problem{DSC_ERR_CONFIG,
                     "two processes claim rank " + std::to_string(hello.rank) + ": " +
                         process_of(*other->second) + " and " + process_of(hello) +
                         "; if they are two jobs, give them different MASTER_PORT or DSC_JOB_ID",
                     {hello.rank}};
  }
  return std::nullopt;
}

}  // namespace

std::string describe(const Hello& hello) {
  return "rank " + std::to_string(hello.rank) + " (" + process_of(hello) + ")";
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

int32_t expected_hellos(const std::vector<Hello>& hellos) {
  int32_t expected = 1;
  for (const Hello& hello : hellos) expected = std::max(expected, hello.world_size);
  return expected;
}

std::vector<int32_t> missing_ranks(const std::vector<Hello>& hellos) {
  std::vector<bool> came(static_cast<size_t>(expected_hellos(hellos)));
  for (const Hello& hello : hellos)
    if (hello.rank >= 0 && static_cast<size_t>(hello.rank) < came.size())
      came[static_cast<size_t>(hello.rank)] = true;
  std::vector<int32_t> missing;
  for (size_t rank = 0; rank < came.size(); ++rank)
    if (!came[rank]) missing.push_back(static_cast<int32_t>(rank));
  return missing;
}

// Versions are compared first, because the other fields may have another meaning in another version.
std::optional<Problem> find_conflict(const std::vector<Hello>& hellos, Hosts hosts) {
  std::string text = differing(hellos, version_text);
  if (!text.empty())
    return Problem{DSC_ERR_VERSION, "versions of libdsc differ: " + text, odd_ones(hellos, version_text)};
  const auto size_text = [](const Hello& hello) { return std::to_string(hello.world_size); };
  text = differing(hellos, size_text);
  if (!text.empty())
    return Problem{DSC_ERR_CONFIG, "world sizes differ: " + text, odd_ones(hellos, size_text)};
  if (auto problem = find_rank_conflict(hellos)) return problem;
  const auto other_config = [&](const Hello& hello) {
    return hello.config_hash != hellos.front().config_hash;
  };
  if (std::any_of(hellos.begin(), hellos.end(), other_config))
    return Problem{DSC_ERR_CONFIG, "settings differ: " + differing_settings(hellos),
                   odd_ones(hellos, [](const Hello& hello) { return std::to_string(hello.config_hash); })};
  text = differing(hellos, [](const Hello& hello) { return hello.host; });
  if (!text.empty() && hosts == Hosts::kOne)
    return Problem{DSC_ERR_CONFIG,
                   "the ranks were started as ranks of one host, but they are on different hosts: " + text +
                       "; set LOCAL_WORLD_SIZE and LOCAL_RANK to the values of each host, and the ranks will "
                       "connect through TCP"};
  return std::nullopt;
}

std::vector<Member> make_table(std::vector<Hello> hellos) {
  std::sort(hellos.begin(), hellos.end(), [](const Hello& a, const Hello& b) { return a.rank < b.rank; });
  std::map<std::string, int32_t> ranks_on_host;
  std::vector<Member> members;
  members.reserve(hellos.size());
  for (const Hello& hello : hellos) {
    const int32_t position = ranks_on_host[hello.host]++;
    const int32_t local_rank = hello.local_rank >= 0 ? hello.local_rank : position;
    members.push_back({hello.rank, local_rank, hello.pid, hello.host, hello.endpoint, hello.host_name});
  }
  return members;
}

}  // namespace dsc
