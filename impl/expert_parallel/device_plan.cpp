#include "expert_parallel/device_plan.hpp"

#include <span>
#include <vector>

#include "base/error.hpp"
#include "expert_parallel/moe_plan.hpp"

namespace dsc {

DevicePlan::DevicePlan(const DeviceContext& context, const MoePlan& plan, int timeout_ms)
    : context_(context),
      top_k_(plan.settings().top_k),
      slots_(plan.positions().size()),
      sent_rows_(plan.exchange().sent_rows()),
      received_rows_(plan.exchange().received_rows()),
      expert_rows_(plan.rows()),
      is_alone_(plan.ranks() == 1),
      is_ordered_(plan.is_ordered()),
      stream_(context.device, 0) {
  auto lists = make_lists(plan);
  if (lists->empty()) return;
  const DeviceScope scope(*context_.device);
  lists_ = std::make_unique<DeviceBuffer>(*context_.device, lists->size() * sizeof(int64_t), stream_.get());
  upload(std::move(lists), Deadline::after_ms(timeout_ms));
}

// Makes all lists, in the same order as the functions that return them.
std::unique_ptr<std::vector<int64_t>> DevicePlan::make_lists(const MoePlan& plan) const {
  const size_t ordered = 2 * sent_rows_ + slots_;
  auto lists = std::make_unique<std::vector<int64_t>>(
      ordered + (is_ordered_ ? 0 : expert_rows_ + received_rows_), int64_t{-1});
  int64_t* const all = lists->data();
  for (size_t slot = 0; slot < slots_; ++slot) {
    const size_t position = plan.positions()[slot];
    if (position == MoePlan::kNowhere) continue;
    all[position] = static_cast<int64_t>(slot / top_k_);
    all[sent_rows_ + position] = static_cast<int64_t>(slot);
    all[2 * sent_rows_ + slot] = static_cast<int64_t>(position);
  }
  if (is_ordered_) return lists;
  for (const RowRun& run : plan.runs())
    for (size_t row = 0; row < run.count; ++row) {
      all[ordered + run.expert + row] = static_cast<int64_t>(run.received + row);
      all[ordered + expert_rows_ + run.received + row] = static_cast<int64_t>(run.expert + row);
    }
  return lists;
}

// Copies the lists to the device. The copy has its own stream, so it waits for no other work. It cannot hang
// behind an operation that never ends, and it may run while the caller captures another stream.
void DevicePlan::upload(std::unique_ptr<std::vector<int64_t>> lists, Deadline deadline) {
  const Device& device = *context_.device;
  device.copy(lists_->address(), address_of(lists->data()), lists->size() * sizeof(int64_t), stream_.get());
  if (wait_for(device, *context_.events, stream_.get(), deadline)) return;
  static_cast<void>(lists.release());  // leaked, because the device may still read it
  fail(DSC_ERR_TIMEOUT, "the lists of the plan were not copied to device %d before the deadline",
       device.number());
}

void DevicePlan::note_use(DeviceStream* stream) const {
  const DeviceScope scope(*context_.device);
  if (!is_capturing(*context_.device, stream))
    order(*context_.device, *context_.events, stream, stream_.get());
}

}  // namespace dsc
