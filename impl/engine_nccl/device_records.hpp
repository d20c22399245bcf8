// The flight recorder's entries of the calls that one launch puts on a device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/engine.hpp"
#include "control/recorder.hpp"

namespace dsc {

// One thread at a time may use an object of this class. Entries that are neither ended nor detached when the
// object is destroyed are recorded as given up.
class DeviceRecords {
 public:
  DeviceRecords() noexcept = default;
  ~DeviceRecords();
  DeviceRecords(const DeviceRecords&) = delete;
  DeviceRecords& operator=(const DeviceRecords&) = delete;

  // Reserves memory for the calls of one launch, so that add() does not throw.
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

// Returns the recorder's form of a call on the device of `comm`.
RecordedCall recorded_on_device(const Call& call, uint64_t sequence, const GroupEngine& group) noexcept;

}  // namespace dsc
