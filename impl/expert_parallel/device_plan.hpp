// The permutations of a plan, in device memory.
#pragma once

#include <memory>

#include "base/clock.hpp"
#include "device/buffer.hpp"
#include "device/context.hpp"

namespace dsc {

class MoePlan;

// A list of int64 for kernels; -1 means that there is no row.
struct RowList {
  DeviceAddress address;
  size_t count;
};

class DevicePlan {
 public:
  // Copies the lists to the device and waits for the copy. Other work on the device does not delay it, except
  // other copies. Throws TIMEOUT.
  DevicePlan(const DeviceContext& context, const MoePlan& plan, int timeout_ms);

  const DeviceContext& context() const noexcept { return context_; }
  size_t top_k() const noexcept { return top_k_; }
  bool is_alone() const noexcept { return is_alone_; }      // true in a group of one rank
  bool is_ordered() const noexcept { return is_ordered_; }  // same as MoePlan::is_ordered()
  size_t received_rows() const noexcept { return received_rows_; }

  RowList tokens_of_sent() const noexcept { return list(0, sent_rows_); }
  RowList slots_of_sent() const noexcept { return list(sent_rows_, sent_rows_); }
  // Returns the position of each slot's row among the rows that are sent.
  RowList positions() const noexcept { return list(2 * sent_rows_, slots_); }
  // For plans that are not ordered: the first function returns the position of each row of an expert among
  // the received rows, and the second returns the inverse.
  RowList received_of_experts() const noexcept { return list(2 * sent_rows_ + slots_, expert_rows_); }
  RowList experts_of_received() const noexcept {
    return list(2 * sent_rows_ + slots_ + expert_rows_, received_rows_);
  }

  // Called after kernels that read the lists were put on a stream, because the lists must be freed after
  // these kernels. During a capture this has no effect.
  void note_use(DeviceStream* stream) const;

 private:
  RowList list(size_t first, size_t count) const noexcept {
    return {lists_ ? lists_->address() + first * sizeof(int64_t) : 0, count};
  }
  std::unique_ptr<std::vector<int64_t>> make_lists(const MoePlan& plan) const;
  void upload(std::unique_ptr<std::vector<int64_t>> lists, Deadline deadline);

  const DeviceContext context_;
  const size_t top_k_, slots_, sent_rows_, received_rows_, expert_rows_;
  const bool is_alone_, is_ordered_;
  const Stream stream_;  // stream of the memory; ordered after all uses of it
  std::unique_ptr<DeviceBuffer> lists_;
};

}  // namespace dsc
