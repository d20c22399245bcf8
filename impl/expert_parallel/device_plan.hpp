// The permutations of a plan in memory of a device.
#pragma once

#include <memory>

#include "base/clock.hpp"
#include "device/buffer.hpp"
#include "device/context.hpp"

namespace dsc {

class MoePlan;

// Lists of int64 as kernels read them; -1 means no row.
struct RowList {
  DeviceAddress address;
  size_t count;
};

class DevicePlan {
 public:
  // Copies the lists to the device and waits for the copy. Other work on the device does not delay it, except
  // copies. Throws TIMEOUT.
  DevicePlan(const DeviceContext& context, const MoePlan& plan, int timeout_ms);

  const DeviceContext& context() const noexcept { return context_; }
  size_t top_k() const noexcept { return top_k_; }
  bool is_alone() const noexcept { return is_alone_; }      // in a group of one rank
  bool is_ordered() const noexcept { return is_ordered_; }  // see MoePlan
  size_t received_rows() const noexcept { return received_rows_; }

  RowList tokens_of_sent() const noexcept { return list(0, sent_rows_); }
  RowList slots_of_sent() const noexcept { return list(sent_rows_, sent_rows_); }
  // Position of each slot's row among the rows that are sent.
  RowList positions() const noexcept { return list(2 * sent_rows_, slots_); }
  // Position of each expert's row among the rows that are received, and the reverse; for plans that are not
  // ordered.
  RowList received_of_experts() const noexcept { return list(2 * sent_rows_ + slots_, expert_rows_); }
  RowList experts_of_received() const noexcept {
    return list(2 * sent_rows_ + slots_ + expert_rows_, received_rows_);
  }

  // Called when kernels that read the lists are on a stream: the memory is freed after them. A captured graph
  // has no such point.
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
  const Stream stream_;  // of the memory: ordered after all uses
  std::unique_ptr<DeviceBuffer> lists_;
};

}  // namespace dsc
