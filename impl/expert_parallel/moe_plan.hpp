// The exchange of a mixture-of-experts layer: tokens are sent to the ranks of their experts, and results are
// sent back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "expert_parallel/device_rows.hpp"
#include "expert_parallel/expert_layout.hpp"
#include "expert_parallel/host_rows.hpp"
#include "expert_parallel/row_exchange.hpp"
#include "expert_parallel/slots.hpp"

namespace dsc {

class MoePlan : public std::enable_shared_from_this<MoePlan> {
 public:
  static constexpr size_t kNowhere = SIZE_MAX;

  // Collective. The caller has checked the settings and the choice.
  static std::shared_ptr<MoePlan> create(Comm& comm, const MoeSettings& settings, const Choice& choice);
  MoePlan(const MoeSettings& settings, const ExpertLayout& layout, size_t slots, ChosenSlots chosen,
          std::vector<size_t> source_rows, size_t ranks, std::shared_ptr<Scratch> scratch);

  const MoeSettings& settings() const noexcept { return settings_; }
  size_t tokens() const noexcept { return positions_.size() / settings_.top_k; }
  Range experts() const noexcept { return layout_.own(); }
  size_t rows() const noexcept { return layout_.expert_rows(source_rows_); }
  // Returns the number of rows that are sent or that are received, whichever is larger. Padding is included.
  size_t most_rows() const noexcept { return exchange_.most_rows(); }
  size_t sent() const noexcept { return sent_; }
  size_t dropped() const noexcept { return dropped_; }
  // Returns how many rows each expert of this rank gets from each rank, ordered by expert and then by source
  // rank.
  const std::vector<size_t>& source_rows() const noexcept { return source_rows_; }
  std::vector<size_t> expert_rows() const;
  // Returns the position of each slot's row among the rows that this rank sends, or kNowhere if the slot is
  // not sent.
  const std::vector<size_t>& positions() const noexcept { return positions_; }

  // --- Functions for the row movers.
  const std::vector<RowRun>& runs() const noexcept { return runs_; }
  size_t ranks() const noexcept { return ranks_; }
  // Returns true if received rows are already ordered by expert.
  bool is_ordered() const noexcept { return is_ordered_; }
  RowExchange& exchange() noexcept { return exchange_; }
  const RowExchange& exchange() const noexcept { return exchange_; }
  RowExchange::Step step(const char* name, bool to_experts) const noexcept;

  RowMover& mover(bool on_device) noexcept {
    if (on_device) return device_;
    return host_;
  }

 private:
  const MoeSettings settings_;
  const ExpertLayout layout_;
  const std::vector<size_t> source_rows_;
  const std::vector<RowRun> runs_;
  const size_t ranks_, sent_, dropped_;
  const bool is_ordered_;
  std::vector<size_t> positions_;
  RowExchange exchange_;
  HostRows host_{*this};
  DeviceRows device_{*this};
};

}  // namespace dsc
