// Selects the hosts of a job and the number of ranks on each. Host files and selections have the syntax of
// the deepspeed launcher.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace dscrun {

inline constexpr int kMaxRanks = 4096;  // on one host

struct Host {
  std::string name;
  std::vector<int> slots;  // ascending; each slot has one rank
  bool selected = false;   // true if its slots were named individually

  bool operator==(const Host&) const = default;
};

struct HostError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Parses lines "NAME slots=NUMBER"; '#' starts a comment. Throws HostError with the line number.
std::vector<Host> parse_host_file(std::string_view text);

// Applies selections of the form "NAME[:SLOT[,SLOT...]][@NAME...]". `include` names the hosts and slots to
// use, and `exclude` those to leave out; at least one of the two is empty. The result has the order of
// `hosts`, and may be empty. Throws HostError.
std::vector<Host> select_hosts(const std::vector<Host>& hosts, std::string_view include,
                               std::string_view exclude);

}  // namespace dscrun
