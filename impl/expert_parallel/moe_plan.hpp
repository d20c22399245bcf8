// The exchange of a mixture-of-experts layer: tokens go to the ranks of their experts and come back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "expert_parallel/expert_layout.hpp"
#include "expert_parallel/row_exchange.hpp"
#include "expert_parallel/slots.hpp"

namespace dsc {

class MoePlan : public std::enable_shared_from_this<MoePlan> {
 public:
  static constexpr size_t kNowhere = SIZE_MAX;

  // Collective. The settings and the choice were checked.
  static std::shared_ptr<MoePlan> create(Comm& comm, const MoeSettings& settings, const Choice& choice);
  MoePlan(const MoeSettings& settings, const ExpertLayout& layout, size_t slots, ChosenSlots chosen,
          std::vector<size_t> source_rows, size_t ranks, std::shared_ptr<Scratch> scratch);

  const MoeSettings& settings() const noexcept { return settings_; }
  size_t tokens() const noexcept { return positions_.size() / settings_.top_k; }
  Range experts() const noexcept { return layout_.own(); }
  size_t rows() const noexcept { return layout_.expert_rows(source_rows_); }
  // The larger one of the numbers of rows that travel, with padding.
  size_t most_rows() const noexcept { return exchange_.most_rows(); }
  size_t sent() const noexcept { return sent_; }
  size_t dropped() const noexcept { return dropped_; }
  // Rows of each expert of this rank from each rank, by expert and then by rank.
  const std::vector<size_t>& source_rows() const noexcept { return source_rows_; }
  std::vector<size_t> expert_rows() const;
  // Position of each slot's row among those that this rank sends, or kNowhere.
  const std::vector<size_t>& positions() const noexcept { return positions_; }

  // Collective; the arguments were checked. With `starts` they return at once, with a work, and otherwise at
  // the end with null. Throw STATE while a work of this plan has not ended.
  std::shared_ptr<Work> dispatch(Comm& comm, const RowFormat& format, const void* tokens, void* rows,
                                 bool starts);
  std::shared_ptr<Work> dispatch_backward(Comm& comm, const RowFormat& format, const void* row_gradients,
                                          void* token_gradients, bool starts);
  // Weights may be null, and so may `returned`.
  struct Combined {
    const void* weights;
    void* out;
    void* returned;
  };
  std::shared_ptr<Work> combine(Comm& comm, const RowFormat& format, const void* rows,
                                const Combined& combined, bool starts);
  // `returned` and `weight_gradients` are null if the latter are not wanted.
  struct CombineGradients {
    const void* out_gradients;
    const void* weights;
    const void* returned;
    void* row_gradients;
    void* weight_gradients;
  };
  std::shared_ptr<Work> combine_backward(Comm& comm, const RowFormat& format,
                                         const CombineGradients& gradients, bool starts);

 private:
  RowExchange::Step step(const char* name, bool to_experts) const noexcept;
  bool is_direct(const RowFormat& format) const noexcept { return is_ordered_ && !format.is_fp8; }

  // Takes the rows that `put(token, slot, row before, place)` writes to the experts.
  template <typename Put>
  std::shared_ptr<Work> to_experts(Comm& comm, const char* name, const RowFormat& format, void* rows,
                                   const Put& put, const std::function<void()>& finish, bool starts);
  // Takes rows back to their tokens, and then calls `finish` with the memory where they lie.
  std::shared_ptr<Work> to_tokens(Comm& comm, const char* name, const RowFormat& format, const void* rows,
                                  const std::function<void(const std::byte*)>& finish, bool starts);
  void deliver(const RowFormat& format, const std::byte* received, void* rows) const;
  void clear_padding(const RowFormat& format, void* rows) const;
  void sum_tokens(const RowFormat& format, const std::byte* rows, const void* weights, void* out) const;
  void copy_returned(const RowFormat& format, const std::byte* rows, void* returned) const;
  void multiply_gradients(const RowFormat& format, const CombineGradients& gradients) const;

  const MoeSettings settings_;
  const ExpertLayout layout_;
  const std::vector<size_t> source_rows_;
  const std::vector<RowRun> runs_;
  const size_t ranks_, sent_, dropped_;
  const bool is_ordered_;
  std::vector<size_t> positions_;
  RowExchange exchange_;
};

}  // namespace dsc
