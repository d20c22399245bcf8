#include "comm/device_records.hpp"

#include "base/clock.hpp"
#include "host/transfer.hpp"

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
    more_.push_back(record);  // there is room: see expect()
  ++count_;
}

void DeviceRecords::start(int64_t ticks) noexcept {
  for_each([&](Record& record) { record.start(ticks); });
}

void DeviceRecords::end(int64_t ticks, dsc_result_t result) noexcept {
  for_each([&](Record& record) { record.end(ticks, result); });
  count_ = 0;
}

void DeviceRecords::let_go(LetGo how) noexcept {
  for_each([&](Record& record) { record.let_go(how); });
  count_ = 0;
}

RecordedCall recorded_on_device(const Call& call, uint64_t number, const Comm& comm) noexcept {
  const Transfer transfer(call, comm.rank(), comm.size());
  RecordedCall recorded;
  recorded.kind = call.kind;
  recorded.dtype = call.dtype;
  recorded.op = call.op;
  recorded.root = call.root;
  recorded.sequence = number;
  recorded.send_bytes = transfer.send_bytes;
  recorded.recv_bytes = transfer.recv_bytes;
  recorded.timeout_ms = call.timeout_ms > 0 ? call.timeout_ms : comm.timeout_ms();
  recorded.on_device = true;
  return recorded;
}

}  // namespace dsc
