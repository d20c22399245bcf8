// Exchanges of rows in host memory.
#pragma once

#include <functional>

#include "expert_parallel/row_mover.hpp"

namespace dsc {

class MoePlan;

// The mover for host memory, owned by a plan. A call throws STATE while an earlier work of the plan has not
// ended.
class HostRows final : public RowMover {
 public:
  explicit HostRows(MoePlan& plan) noexcept : plan_(plan) {}

  std::shared_ptr<Work> dispatch(const RowCall& call, const void* tokens, void* rows) override;
  std::shared_ptr<Work> dispatch_backward(const RowCall& call, const void* row_gradients,
                                          void* token_gradients) override;
  std::shared_ptr<Work> combine(const RowCall& call, const void* rows, const Combined& combined) override;
  std::shared_ptr<Work> combine_backward(const RowCall& call, const CombineGradients& gradients) override;

 private:
  bool is_direct(const RowFormat& format) const noexcept;

  // Sends rows to the experts. `put(token, slot, previous row of the token, memory)` writes each row.
  template <typename Put>
  std::shared_ptr<Work> to_experts(const RowCall& call, const char* name, void* rows, const Put& put,
                                   const std::function<void()>& finish);
  // Sends rows back to their tokens. Then calls `finish` with the memory of the received rows.
  std::shared_ptr<Work> to_tokens(const RowCall& call, const char* name, const void* rows,
                                  const std::function<void(const std::byte*)>& finish);
  void deliver(const RowFormat& format, const std::byte* received, void* rows) const;
  void clear_padding(const RowFormat& format, void* rows) const;
  void sum_tokens(const RowFormat& format, const std::byte* rows, const void* weights, void* out) const;
  void copy_returned(const RowFormat& format, const std::byte* rows, void* returned) const;
  void multiply_gradients(const RowFormat& format, const CombineGradients& gradients) const;

  MoePlan& plan_;
};

}  // namespace dsc
