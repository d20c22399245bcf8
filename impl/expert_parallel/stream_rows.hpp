// Permutes, sums and multiplies rows in device memory, in the order of a stream.
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "comm/device_steps.hpp"
#include "device/buffer.hpp"
#include "expert_parallel/device_plan.hpp"
#include "expert_parallel/row_exchange.hpp"

namespace dsc {

class StreamRows final : public DeviceSteps::OnStream {
 public:
  StreamRows(std::shared_ptr<const DevicePlan> plan, const RowFormat& format, DeviceStream* stream)
      : plan_(std::move(plan)), format_(format), stream_(stream) {}
  ~StreamRows() override;

  // Returns memory for rows. It stays valid until all work of this object is on the stream.
  void* take(size_t rows);
  // Copies rows in the order of the list. Writes zeros where the list contains no row.
  void gather(const void* from, const RowList& list, void* to);
  // Computes sums of rows, with weights unless they are null. Sum i adds `terms` rows, which the entries of
  // `list` from i * terms on select. The same entries of `weight_list` select their weights. If `weight_list`
  // is empty, a weight has the same position as the entry in `list`.
  struct Sums {
    size_t terms = 1;
    const void* weights = nullptr;
    RowList weight_list = {};
  };
  void sum(const void* from, const RowList& list, const Sums& sums, void* to);
  // Computes the dot product of each slot's row in `others` with the row of its token.
  void multiply(const void* tokens, const void* others, void* products);

  const DevicePlan& plan() const noexcept { return *plan_; }
  std::function<void()> then;
  void finish() override { then(); }

 private:
  DeviceBuffer& allocate(size_t bytes);
  const Kernels& kernels() const { return plan_->context().kernels->get(); }

  const std::shared_ptr<const DevicePlan> plan_;
  const RowFormat format_;
  DeviceStream* const stream_;
  std::deque<DeviceBuffer> memory_;
};

// The device steps of an exchange. `start` puts the work before the operation on the stream and sets the
// call's buffers. It returns a function that puts the work after the operation on the stream.
class RowSteps final : public DeviceSteps {
 public:
  using Start = std::function<std::function<void()>(StreamRows&, Call&)>;
  RowSteps(std::shared_ptr<const DevicePlan> plan, const RowFormat& format, Start start)
      : plan_(std::move(plan)), format_(format), start_(std::move(start)) {}

  std::unique_ptr<OnStream> begin(Call& call, DeviceStream* stream) const override {
    auto rows = std::make_unique<StreamRows>(plan_, format_, stream);
    rows->then = start_(*rows, call);
    return rows;
  }

 private:
  const std::shared_ptr<const DevicePlan> plan_;
  const RowFormat format_;
  const Start start_;
};

}  // namespace dsc
