// Which rank is on which host.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/claims.hpp"

namespace dsc {

struct JobLayout {
  std::vector<int32_t> host_of_rank;  // hosts are numbered in the order of their lowest ranks
  std::vector<std::string> places;    // of each host, its name in errors

  int32_t world_size() const { return static_cast<int32_t>(host_of_rank.size()); }
  int32_t host_count() const { return static_cast<int32_t>(places.size()); }
  const std::string& place_of(int32_t rank) const {
    return places[static_cast<size_t>(host_of_rank[static_cast<size_t>(rank)])];
  }
};

// Of members in rank order.
JobLayout layout_of(const std::vector<Member>& members);

// Every rank gets it, so it is short: a few bytes of each host's place, and nothing more for hosts with as
// many ranks as the one before.
std::string encode(const JobLayout& layout);
// Nothing if the bytes are no layout.
std::optional<JobLayout> decode_layout(std::string_view bytes);

}  // namespace dsc
