// Host files and selections of dscrun. What was parsed can be written and parsed again. A selection takes
// exactly those slots that the same words, as an exclusion, leave out.
#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "dscrun/hosts.hpp"
#include "fuzz.hpp"

namespace dsc::fuzz {
namespace {

using dscrun::Host;
using Hosts = std::vector<Host>;
using Slots = std::set<std::pair<std::string, int>>;

Slots slots_of(const Hosts& hosts) {
  Slots slots;
  for (const Host& host : hosts)
    for (const int slot : host.slots) FUZZ_REQUIRE(slots.emplace(host.name, slot).second);
  return slots;
}

void check_hosts(const Hosts& hosts) {
  FUZZ_REQUIRE(!hosts.empty());
  std::set<std::string> names;
  std::string text;
  for (const Host& host : hosts) {
    FUZZ_REQUIRE(!host.name.empty() && host.name.front() != '-');
    FUZZ_REQUIRE(host.name.find_first_of(" \t\r\v\f\n#") == std::string::npos);
    FUZZ_REQUIRE(names.insert(host.name).second);
    const auto slots = static_cast<int>(host.slots.size());
    FUZZ_REQUIRE(slots >= 1 && slots <= dscrun::kMaxRanks && !host.selected);
    FUZZ_REQUIRE(host.slots.front() == 0 && host.slots.back() == slots - 1);
    text += host.name + " slots=" + std::to_string(slots) + "\n";
  }
  FUZZ_REQUIRE(dscrun::parse_host_file(text) == hosts);
}

// Checks that `part` keeps the order of `hosts`, and has no host and no slot that `hosts` lacks.
void check_part_of(const Hosts& part, const Hosts& hosts) {
  auto next = hosts.begin();
  for (const Host& host : part) {
    next = std::find_if(next, hosts.end(), [&](const Host& known) { return known.name == host.name; });
    FUZZ_REQUIRE(next != hosts.end() && !host.slots.empty());
    FUZZ_REQUIRE(std::ranges::includes(next++->slots, host.slots));
  }
}

// Returns nothing if the words are refused.
std::optional<Hosts> select(const Hosts& hosts, std::string_view include, std::string_view exclude) {
  try {
    const Hosts chosen = dscrun::select_hosts(hosts, include, exclude);
    check_part_of(chosen, hosts);
    return chosen;
  } catch (const dscrun::HostError& error) {
    FUZZ_REQUIRE(*error.what() != '\0');
    return std::nullopt;
  }
}

bool names_a_host_twice(std::string_view words) {
  std::set<std::string_view> names;
  for (Input input(words); !input.empty();)
    if (!names.insert(Input(input.until('@')).until(':')).second) return true;
  return false;
}

void check_selection(const Hosts& hosts, std::string_view words) {
  const auto in = select(hosts, words, ""), out = select(hosts, "", words);
  FUZZ_REQUIRE(in.has_value() == out.has_value());
  if (!in) return;
  if (words.empty()) {
    FUZZ_REQUIRE(*in == hosts && *out == hosts);
    return;
  }
  Slots taken = slots_of(*in), left = slots_of(*out);
  // an inclusion uses only the last of two words for a host, an exclusion uses both
  if (names_a_host_twice(words)) return;
  const size_t both = taken.size() + left.size();
  taken.merge(left);
  FUZZ_REQUIRE(taken.size() == both && taken == slots_of(hosts));
}

}  // namespace

void fuzz_hosts(Bytes bytes) {
  Input input(bytes);
  const std::string_view words = input.until('\0');
  Hosts hosts;
  try {
    hosts = dscrun::parse_host_file(input.rest());
  } catch (const dscrun::HostError& error) {
    const std::string_view text = error.what();
    FUZZ_REQUIRE(text.starts_with("line ") ||
                 text == "contains no host, expected lines of the form NAME slots=NUMBER");
    return;
  }
  check_hosts(hosts);
  constexpr size_t kMostSlots = 256;  // more slots test nothing new and take long
  size_t slots = 0;
  for (const Host& host : hosts) slots += host.slots.size();
  if (slots <= kMostSlots) check_selection(hosts, words);
}

}  // namespace dsc::fuzz
