#include "engine_nccl/device_records.hpp"

#include "base/clock.hpp"
#include "comm/transfer.hpp"

namespace dsc {

DeviceRecords::~DeviceRecords() {
  if (count_ > 0) end(tick_now(), DSC_ERR_REVOKED);
}

void DeviceRecords::expect(size_t calls) {
  if (calls > kFew) more_.reserve(calls - kFew);
}

void DeviceRecords::add(Record record) noexcept {
  if (count_ < kFew)
    few_[count_] = record;
  else
    more_.push_back(record);  // does not throw: expect() has reserved memory
  ++count_;
}

void DeviceRecords::start(int64_t ticks) noexcept {
  for_each([&](Record& record) { record.start(ticks); });
}

void DeviceRecords::end(int64_t ticks, dsc_result_t result) noexcept {
  for_each([&](Record& record) { record.end(ticks, result); });
  count_ = 0;
}

void DeviceRecords::detach(Detached how) noexcept {
  for_each([&](Record& record) { record.detach(how); });
  count_ = 0;
}

RecordedCall recorded_on_device(const Call& call, uint64_t sequence, const GroupEngine& group) noexcept {
  const Transfer transfer(call, group.rank(), group.size());
  RecordedCall recorded = recorded_call(call, sequence, transfer.send_bytes, transfer.recv_bytes,
                                        call.timeout_ms > 0 ? call.timeout_ms : group.timeout_ms());
  recorded.on_device = true;
  return recorded;
}

}  // namespace dsc
