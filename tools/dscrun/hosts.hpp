// Which hosts take part, with how many ranks: host files and selections as the deepspeed launcher writes
// them.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace dscrun {

inline constexpr int kMaxRanks = 4096;  // of one host

struct Host {
  std::string name;
  std::vector<int> slots;  // ascending; one rank for each
  bool selected = false;   // its slots were named one by one

  bool operator==(const Host&) const = default;
};

struct HostError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Lines "NAME slots=NUMBER", '#' starts a comment. Throws HostError with the line's number.
std::vector<Host> parse_host_file(std::string_view text);

// "NAME[:SLOT[,SLOT...]][@NAME...]": the hosts and slots to take, or to leave out; at most one of the two is
// not empty. The result keeps the order of `hosts`, and may be empty. Throws HostError.
std::vector<Host> select_hosts(const std::vector<Host>& hosts, std::string_view include,
                               std::string_view exclude);

}  // namespace dscrun
