#include "expert_parallel/expert_layout.hpp"

#include <numeric>

#include "base/error.hpp"

namespace dsc {

ExpertLayout::ExpertLayout(const MoeSettings& settings, size_t rank, size_t ranks)
    : experts_(settings.experts),
      rank_(rank),
      ranks_(ranks),
      padding_(settings.padded ? settings.capacity : 0) {
  size_t rows = 0;
  if (__builtin_mul_overflow(most_experts() * ranks, padding_, &rows) || rows > SIZE_MAX / 16)
    fail(DSC_ERR_OVERFLOW, "%zu experts with a capacity of %zu rows do not fit the address space", experts_,
         padding_);
}

// Returns the rank that holds an expert. Each of the first experts_ % ranks_ ranks holds one expert more than
// the other ranks.
size_t ExpertLayout::rank_of(size_t expert) const noexcept {
  const size_t least = experts_ / ranks_, longer = experts_ % ranks_;
  const size_t of_longer = longer * (least + 1);
  return expert < of_longer ? expert / (least + 1) : longer + (expert - of_longer) / least;
}

std::vector<size_t> ExpertLayout::rows_to(const std::vector<size_t>& counts) const {
  if (padded()) return std::vector<size_t>(ranks_, block());
  std::vector<size_t> rows(ranks_);
  for (size_t expert = 0; expert < experts_; ++expert) rows[rank_of(expert)] += counts[expert];
  return rows;
}

std::vector<size_t> ExpertLayout::send_starts(const std::vector<size_t>& counts) const {
  std::vector<size_t> starts(experts_);
  size_t next = 0;
  for (size_t expert = 0; expert < experts_; ++expert) {
    const size_t holder = rank_of(expert), first = split_range(experts_, ranks_, holder).begin;
    starts[expert] = padded() ? holder * block() + (expert - first) * padding_ : next;
    next += counts[expert];
  }
  return starts;
}

std::vector<RowRun> ExpertLayout::runs(const std::vector<size_t>& source_rows) const {
  std::vector<size_t> next = starts_of_sources(source_rows);
  std::vector<RowRun> runs;
  size_t rows = 0;
  for (size_t i = 0; i < source_rows.size(); ++i) {
    const size_t expert = i / ranks_, source = i % ranks_, count = source_rows[i];
    if (count == 0) continue;
    if (padded())
      runs.push_back({source * block() + expert * padding_, i * padding_, count});
    else
      runs.push_back({next[source], rows, count});
    next[source] += count;
    rows += count;
  }
  return runs;
}

std::vector<size_t> ExpertLayout::starts_of_sources(const std::vector<size_t>& source_rows) const {
  std::vector<size_t> starts = rows_from(source_rows);
  std::exclusive_scan(starts.begin(), starts.end(), starts.begin(), size_t{0});
  return starts;
}

std::vector<size_t> ExpertLayout::rows_from(const std::vector<size_t>& source_rows) const {
  if (padded()) return std::vector<size_t>(ranks_, block());
  std::vector<size_t> rows(ranks_);
  for (size_t i = 0; i < source_rows.size(); ++i) rows[i % ranks_] += source_rows[i];
  return rows;
}

size_t ExpertLayout::expert_rows(const std::vector<size_t>& source_rows) const {
  if (padded()) return own().count * ranks_ * padding_;
  size_t total = 0;
  for (const size_t rows : source_rows) total += rows;
  return total;
}

bool ExpertLayout::is_ordered() const noexcept {
  if (ranks_ == 1) return true;
  return padded() ? most_experts() == 1 && own().count == 1 : own().count <= 1;
}

}  // namespace dsc
