// The assignment of ranks to hosts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/hello.hpp"

namespace dsc {

struct JobLayout {
  std::vector<int32_t> host_of_rank;    // hosts are numbered in the order of their lowest ranks
  std::vector<std::string> host_names;  // name of each host for errors

  int32_t world_size() const { return static_cast<int32_t>(host_of_rank.size()); }
  int32_t host_count() const { return static_cast<int32_t>(host_names.size()); }
  const std::string& host_name_of(int32_t rank) const {
    return host_names[static_cast<size_t>(host_of_rank[static_cast<size_t>(rank)])];
  }
};

// Returns the layout for members in rank order.
JobLayout layout_of(const std::vector<Member>& members);

// The encoding is compact, because every rank receives it. It takes a few bytes for each host name. A host
// with the same number of ranks as the preceding host needs no further bytes.
std::string encode(const JobLayout& layout);
// Returns nullopt if the bytes are malformed.
std::optional<JobLayout> decode_layout(std::string_view bytes);

}  // namespace dsc
