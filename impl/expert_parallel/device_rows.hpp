// Exchanges of rows in device memory, in the order of the device's streams.
#pragma once

#include <functional>
#include <memory>

#include "expert_parallel/row_mover.hpp"

namespace dsc {

class DevicePlan;
class MoePlan;
class StreamRows;

// The mover for device memory, owned by a plan. Each call has separate memory, so any number of calls may be
// in progress.
class DeviceRows final : public RowMover {
 public:
  explicit DeviceRows(MoePlan& plan) noexcept : plan_(plan) {}

  std::shared_ptr<Work> dispatch(const RowCall& call, const void* tokens, void* rows) override;
  std::shared_ptr<Work> dispatch_backward(const RowCall& call, const void* row_gradients,
                                          void* token_gradients) override;
  std::shared_ptr<Work> combine(const RowCall& call, const void* rows, const Combined& combined) override;
  std::shared_ptr<Work> combine_backward(const RowCall& call, const CombineGradients& gradients) override;

 private:
  // Calls `fill`, which writes rows to memory, sends these rows to the experts, and then calls `finish`.
  std::shared_ptr<Work> to_experts(const RowCall& call, const char* name, void* rows,
                                   const std::function<void(StreamRows&, void*)>& fill,
                                   const std::function<void(StreamRows&)>& finish);
  // Sends rows back to their tokens. Then calls `finish` with the memory of the received rows.
  std::shared_ptr<Work> to_tokens(const RowCall& call, const char* name, const void* rows,
                                  const std::function<void(StreamRows&, const void*)>& finish);
  using Start = std::function<std::function<void()>(StreamRows&, Call&)>;
  std::shared_ptr<Work> run(const RowCall& call, const RowExchange::Step& step, const Start& start);

  MoePlan& plan_;
  std::shared_ptr<const DevicePlan> on_device_;  // set by the first call
};

}  // namespace dsc
