// Maps the ranks of a group to hosts, and defines the node-major order in which their data travels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bootstrap/job_layout.hpp"

namespace dsc {

class HierLayout {
 public:
  // `global_ranks[r]` is the global rank of the group's rank r; `rank` is this process's rank in the group.
  HierLayout(std::vector<int32_t> global_ranks, const JobLayout& job, int rank);

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return static_cast<int>(global_ranks_.size()); }
  int hosts() const noexcept { return static_cast<int>(members_.size()); }
  const std::vector<int32_t>& global_ranks() const noexcept { return global_ranks_; }

  // Hosts are numbered in the order of their lowest ranks. The lowest rank of a host is its leader.
  // local_index_of() is the index of a rank among the members of its host.
  int host_of(int rank) const noexcept { return host_of_[static_cast<size_t>(rank)]; }
  int local_index_of(int rank) const noexcept { return local_index_[static_cast<size_t>(rank)]; }
  const std::vector<int32_t>& members(int host) const noexcept { return members_[static_cast<size_t>(host)]; }
  int leader(int host) const noexcept { return members(host).front(); }
  int own_host() const noexcept { return host_of(rank_); }
  int own_local_index() const noexcept { return local_index_of(rank_); }
  const std::vector<int32_t>& own_members() const noexcept { return members(own_host()); }
  bool leads() const noexcept { return own_local_index() == 0; }
  size_t most_members() const noexcept;  // the largest number of members on a host

  // True if node-major order is rank order.
  bool in_order() const noexcept { return in_order_; }
  // All ranks of the group, ordered by host and then by rank.
  const std::vector<int32_t>& node_major_order() const noexcept { return node_major_order_; }

  // Copy the ranks' blocks, `lengths[r]` bytes each, from rank order to node-major order and back.
  void pack(std::byte* to, const std::byte* from, const std::vector<size_t>& lengths) const;
  void unpack(std::byte* to, const std::byte* from, const std::vector<size_t>& lengths) const;

 private:
  const std::vector<int32_t> global_ranks_;
  const int rank_;
  std::vector<int32_t> host_of_;
  std::vector<int32_t> local_index_;
  std::vector<std::vector<int32_t>> members_;
  std::vector<int32_t> node_major_order_;
  bool in_order_ = true;
};

}  // namespace dsc
