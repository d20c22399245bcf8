// What the flight recorder holds of the calls that one launch puts on a device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/comm.hpp"
#include "control/recorder.hpp"

namespace dsc {

// One thread at a time. What is neither ended nor let go of when it goes was given up.
class DeviceRecords {
 public:
  DeviceRecords() noexcept = default;
  ~DeviceRecords();
  DeviceRecords(const DeviceRecords&) = delete;
  DeviceRecords& operator=(const DeviceRecords&) = delete;

  // Of one launch; so that nothing throws once the first call is recorded.
  void expect(size_t calls);
  void add(Record record) noexcept;

  void start(int64_t ticks) noexcept;
  void end(int64_t ticks, dsc_result_t result) noexcept;
  void detach(Detached how) noexcept;

 private:
  template <typename Do>
  void for_each(const Do& apply) noexcept {
    for (size_t i = 0; i < count_; ++i) apply(i < kFew ? few_[i] : more_[i - kFew]);
  }

  static constexpr size_t kFew = 1;
  std::array<Record, kFew> few_;
  std::vector<Record> more_;
  size_t count_ = 0;
};

// As `comm` calls it.
RecordedCall recorded_on_device(const Call& call, uint64_t number, const Comm& comm) noexcept;

}  // namespace dsc
