// A range of host addresses that stays reserved, while memory behind parts of it is provided and removed.
#pragma once

#include <cstddef>

namespace dsc {

// Only one thread at a time may use an object.
class AddressRange {
 public:
  // A part without memory reads as zeros, and a write gives it pages from the system. If `faults` is set, any
  // access to such a part causes SIGSEGV instead, so that the use of an outdated address is found where it
  // happens.
  AddressRange(size_t bytes, bool faults);
  ~AddressRange();
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;

  std::byte* begin() const noexcept { return begin_; }

  // All offsets and lengths below are multiples of a page.
  //
  // alias() maps shared memory a second time, as a part of this range. Returns false if the system refuses
  // that.
  bool alias(size_t offset, std::byte* shared, size_t bytes) const noexcept;
  // Gives a part pages from the system. Its contents do not change.
  void provide(size_t offset, size_t bytes) const;
  // Removes the memory of a part, which then reads as zeros again.
  void clear(size_t offset, size_t bytes) const;
  // Leaks the range on purpose; the addresses stay reserved.
  void keep() noexcept { begin_ = nullptr; }

 private:
  const size_t bytes_;
  const bool faults_;
  std::byte* begin_;
};

}  // namespace dsc
