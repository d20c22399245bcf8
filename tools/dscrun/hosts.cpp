#include "dscrun/hosts.hpp"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>

namespace dscrun {
namespace {

constexpr std::string_view kBlanks = " \t\r\v\f";

std::string_view strip(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t end = 0; end != std::string_view::npos; text.remove_prefix(std::min(end + 1, text.size()))) {
    end = text.find(separator);
    parts.push_back(text.substr(0, end));
  }
  return parts;
}

std::optional<int> parse_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && text.front() != '-' ? std::optional(value) : std::nullopt;
}

std::string in_quotes(std::string_view text) { return "'" + std::string(text) + "'"; }

// Parses one host. Its name must not look like an option to the command that connects to the host.
Host parse_line(std::string_view line) {
  // DeepSpeed reads "slots=2x", "slots=2 extra=1" and "slots=0" as 2, 2 and 0. Here they are errors, because
  // a line must not be followed only in part.
  constexpr std::string_view kSlots = "slots=";
  const std::string_view name = line.substr(0, line.find_first_of(kBlanks));
  const std::string_view rest = strip(line.substr(name.size()));
  const auto slots = rest.starts_with(kSlots) ? parse_number(rest.substr(kSlots.size())) : std::nullopt;
  if (!slots || name.front() == '-') throw HostError("expected NAME slots=NUMBER, got " + in_quotes(line));
  if (*slots < 1 || *slots > kMaxRanks)
    throw HostError("expected slots from 1 to " + std::to_string(kMaxRanks) + ", got " + in_quotes(line));
  Host host{std::string(name), std::vector<int>(static_cast<size_t>(*slots))};
  std::iota(host.slots.begin(), host.slots.end(), 0);
  return host;
}

Host& find_host(std::vector<Host>& hosts, std::string_view name) {
  const auto found = std::find_if(hosts.begin(), hosts.end(), [&](const Host& h) { return h.name == name; });
  if (found != hosts.end()) return *found;
  std::string known;
  for (const Host& host : hosts) known += (known.empty() ? "" : ", ") + host.name;
  throw HostError("unknown host " + in_quotes(name) + ", expected one of: " + known);
}

// Parses the slots after the colon. Each of them must exist on the host.
std::vector<int> parse_slots(const Host& host, std::string_view text) {
  std::vector<int> slots;
  for (const std::string_view part : split(text, ',')) {
    const auto slot = parse_number(part);
    if (!slot || !std::binary_search(host.slots.begin(), host.slots.end(), *slot))
      throw HostError("unknown slot " + in_quotes(part) + " of host " + in_quotes(host.name) +
                      ", expected 0 to " + std::to_string(host.slots.back()));
    slots.push_back(*slot);
  }
  std::sort(slots.begin(), slots.end());
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
  return slots;
}

// If a host is named several times, the last one counts.
void include_part(const Host& known, Host& chosen, std::string_view slots, bool whole) {
  chosen.slots = whole ? known.slots : parse_slots(known, slots);
  chosen.selected = !whole;
}

void exclude_part(const Host& known, Host& chosen, std::string_view slots, bool whole) {
  const std::vector<int> out = whole ? known.slots : parse_slots(known, slots);
  std::erase_if(chosen.slots, [&](int slot) { return std::binary_search(out.begin(), out.end(), slot); });
  chosen.selected = true;
}

}  // namespace

std::vector<Host> parse_host_file(std::string_view text) {
  std::vector<Host> hosts;
  int number = 0;
  for (const std::string_view whole_line : split(text, '\n')) try {
      ++number;
      const std::string_view line = strip(whole_line.substr(0, whole_line.find('#')));
      if (line.empty()) continue;
      Host host = parse_line(line);
      for (const Host& other : hosts)
        if (other.name == host.name)
          throw HostError("host " + in_quotes(host.name) + " occurs twice, expected each host once");
      hosts.push_back(std::move(host));
    } catch (const HostError& error) {
      throw HostError("line " + std::to_string(number) + ": " + error.what());
    }
  if (hosts.empty()) throw HostError("contains no host, expected lines of the form NAME slots=NUMBER");
  return hosts;
}

std::vector<Host> select_hosts(const std::vector<Host>& hosts, std::string_view include,
                               std::string_view exclude) {
  if (!include.empty() && !exclude.empty()) throw HostError("cannot be given together with --exclude");
  if (include.empty() && exclude.empty()) return hosts;
  std::vector<Host> known = hosts, chosen = hosts;
  if (exclude.empty())
    for (Host& host : chosen) host.slots.clear();
  for (const std::string_view part : split(exclude.empty() ? include : exclude, '@')) {
    const size_t colon = part.find(':');
    const bool whole = colon == std::string_view::npos;
    const Host& host = find_host(known, part.substr(0, colon));
    const std::string_view slots = whole ? std::string_view() : part.substr(colon + 1);
    (exclude.empty() ? include_part : exclude_part)(host, find_host(chosen, host.name), slots, whole);
  }
  std::erase_if(chosen, [](const Host& host) { return host.slots.empty(); });
  return chosen;
}

}  // namespace dscrun
