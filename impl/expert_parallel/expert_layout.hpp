// The order of rows: rows that a rank sends, rows that it receives in the order of the ranks that sent them,
// and rows that its experts get.
#pragma once

#include <cstddef>
#include <vector>

#include "base/split_range.hpp"
#include "expert_parallel/slots.hpp"

namespace dsc {

// Consecutive rows of one expert and source rank, in both orders, one or more. `count` leaves out padding.
struct RowRun {
  size_t received;  // position in the order of sources
  size_t expert;    // position in the order of experts
  size_t count;
};

class ExpertLayout {
 public:
  ExpertLayout(const MoeSettings& settings, size_t rank, size_t ranks);

  Range own() const noexcept { return split_range(experts_, ranks_, rank_); }
  // Number of experts of the ranks that have most.
  size_t most_experts() const noexcept { return (experts_ + ranks_ - 1) / ranks_; }
  size_t rank_of(size_t expert) const noexcept;

  // Rows that this rank sends to each rank if it has `counts` rows for each expert, and the index of each
  // expert's first row among them.
  std::vector<size_t> rows_to(const std::vector<size_t>& counts) const;
  std::vector<size_t> send_starts(const std::vector<size_t>& counts) const;

  // The runs of this rank's experts, by expert and then by source; `source_rows` has one number for each such
  // pair. Pairs without rows have no run, so that a plan of very many experts stays small.
  std::vector<RowRun> runs(const std::vector<size_t>& source_rows) const;
  // Rows that this rank receives from each rank.
  std::vector<size_t> rows_from(const std::vector<size_t>& source_rows) const;
  // Rows of this rank's experts, with padding.
  size_t expert_rows(const std::vector<size_t>& source_rows) const;
  // Returns whether the received rows are already in the order of experts.
  bool is_ordered() const noexcept;

 private:
  bool padded() const noexcept { return padding_ > 0; }
  // Index of the first row of each source rank among the rows that this rank receives.
  std::vector<size_t> starts_of_sources(const std::vector<size_t>& source_rows) const;
  size_t block() const noexcept { return most_experts() * padding_; }  // rows to each rank, if padded

  size_t experts_, rank_, ranks_;
  size_t padding_;  // rows of each expert and source; 0 if there is no padding
};

}  // namespace dsc
