// Computes the order of rows: the rows that a rank sends, the rows that it receives (ordered by source rank),
// and the rows of its experts.
#pragma once

#include <cstddef>
#include <vector>

#include "base/split_range.hpp"
#include "expert_parallel/slots.hpp"

namespace dsc {

// One or more rows with the same expert and source rank. They are consecutive in both orders. `count` does
// not include padding.
struct RowRun {
  size_t received;  // position among the received rows
  size_t expert;    // position among the rows ordered by expert
  size_t count;
};

class ExpertLayout {
 public:
  ExpertLayout(const MoeSettings& settings, size_t rank, size_t ranks);

  Range own() const noexcept { return split_range(experts_, ranks_, rank_); }
  // Returns the largest number of experts on any rank.
  size_t most_experts() const noexcept { return (experts_ + ranks_ - 1) / ranks_; }
  size_t rank_of(size_t expert) const noexcept;

  // `counts` is the number of this rank's rows for each expert. rows_to() returns how many rows this rank
  // sends to each rank; send_starts() returns the index of each expert's first row among them.
  std::vector<size_t> rows_to(const std::vector<size_t>& counts) const;
  std::vector<size_t> send_starts(const std::vector<size_t>& counts) const;

  // Returns the runs for this rank's experts, ordered by expert and then by source rank. `source_rows` has
  // the number of rows of each such pair. Pairs without rows have no run, so that a plan with very many
  // experts stays small.
  std::vector<RowRun> runs(const std::vector<size_t>& source_rows) const;
  // Returns how many rows this rank receives from each rank.
  std::vector<size_t> rows_from(const std::vector<size_t>& source_rows) const;
  // Returns the number of rows of this rank's experts, including padding.
  size_t expert_rows(const std::vector<size_t>& source_rows) const;
  // Returns true if the received rows are already ordered by expert.
  bool is_ordered() const noexcept;

 private:
  bool padded() const noexcept { return padding_ > 0; }
  // Returns the index of each source rank's first row among the received rows.
  std::vector<size_t> starts_of_sources(const std::vector<size_t>& source_rows) const;
  // With padding, the number of rows to each rank.
  size_t block() const noexcept { return most_experts() * padding_; }

  size_t experts_, rank_, ranks_;
  size_t padding_;  // number of rows per expert and source; 0 if there is no padding
};

}  // namespace dsc
