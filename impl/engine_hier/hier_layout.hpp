// Which members of a group are on which host, and the order in which their data travels: host after host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bootstrap/job_layout.hpp"

namespace dsc {

class HierLayout {
 public:
  // `global_ranks[r]` is the rank in the job of the group's rank r; `rank` is this one's.
  HierLayout(std::vector<int32_t> global_ranks, const JobLayout& job, int rank);

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return static_cast<int>(global_ranks_.size()); }
  int hosts() const noexcept { return static_cast<int>(members_.size()); }
  const std::vector<int32_t>& global_ranks() const noexcept { return global_ranks_; }

  // Hosts are numbered in the order of their lowest ranks, which lead them.
  int host_of(int rank) const noexcept { return host_of_[static_cast<size_t>(rank)]; }
  int place_of(int rank) const noexcept { return place_of_[static_cast<size_t>(rank)]; }  // on its host
  const std::vector<int32_t>& members(int host) const noexcept { return members_[static_cast<size_t>(host)]; }
  int leader(int host) const noexcept { return members(host).front(); }
  int own_host() const noexcept { return host_of(rank_); }
  int own_place() const noexcept { return place_of(rank_); }
  const std::vector<int32_t>& own_members() const noexcept { return members(own_host()); }
  bool leads() const noexcept { return own_place() == 0; }
  size_t most_members() const noexcept;  // of a host

  // Host after host is rank after rank.
  bool in_order() const noexcept { return in_order_; }
  // All ranks, host after host.
  const std::vector<int32_t>& node_major_order() const noexcept { return travel_order_; }

  // Blocks of the ranks, `lengths[r]` bytes each, from rank order to travel order and back.
  void pack(std::byte* to, const std::byte* from, const std::vector<size_t>& lengths) const;
  void unpack(std::byte* to, const std::byte* from, const std::vector<size_t>& lengths) const;

 private:
  const std::vector<int32_t> global_ranks_;
  const int rank_;
  std::vector<int32_t> host_of_;
  std::vector<int32_t> place_of_;
  std::vector<std::vector<int32_t>> members_;
  std::vector<int32_t> travel_order_;
  bool in_order_ = true;
};

}  // namespace dsc
