#include "engine_hier/hier_layout.hpp"

#include <algorithm>
#include <unordered_map>

#include "dtype/reduce.hpp"

namespace dsc {
namespace {

// Returns the offset of each rank's block when the blocks lie in rank order.
std::vector<size_t> starts_of(const std::vector<size_t>& lengths) {
  std::vector<size_t> starts;
  size_t sum = 0;
  for (const size_t length : lengths) {
    starts.push_back(sum);
    sum += length;
  }
  return starts;
}

}  // namespace

HierLayout::HierLayout(std::vector<int32_t> global_ranks, const JobLayout& job, int rank)
    : global_ranks_(std::move(global_ranks)), rank_(rank) {
  std::unordered_map<int32_t, int32_t> hosts;
  for (size_t r = 0; r < global_ranks_.size(); ++r) {
    const int32_t job_host = job.host_of_rank[static_cast<size_t>(global_ranks_[r])];
    const auto [host, is_new] = hosts.emplace(job_host, static_cast<int32_t>(members_.size()));
    if (is_new) members_.emplace_back();
    auto& members = members_[static_cast<size_t>(host->second)];
    host_of_.push_back(host->second);
    local_index_.push_back(static_cast<int32_t>(members.size()));
    members.push_back(static_cast<int32_t>(r));
  }
  for (const auto& members : members_)
    node_major_order_.insert(node_major_order_.end(), members.begin(), members.end());
  in_order_ = std::ranges::is_sorted(node_major_order_);
}

size_t HierLayout::most_members() const noexcept {
  size_t most = 0;
  for (const auto& members : members_) most = std::max(most, members.size());
  return most;
}

void HierLayout::pack(std::byte* to, const std::byte* from, const std::vector<size_t>& lengths) const {
  const auto starts = starts_of(lengths);
  for (const int32_t rank : node_major_order_) {
    const auto r = static_cast<size_t>(rank);
    copy_bytes(to, from + starts[r], lengths[r]);
    to += lengths[r];
  }
}

void HierLayout::unpack(std::byte* to, const std::byte* from, const std::vector<size_t>& lengths) const {
  const auto starts = starts_of(lengths);
  for (const int32_t rank : node_major_order_) {
    const auto r = static_cast<size_t>(rank);
    copy_bytes(to + starts[r], from, lengths[r]);
    from += lengths[r];
  }
}

}  // namespace dsc
