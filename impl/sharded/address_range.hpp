// Addresses in the host that last, while the memory behind them comes and goes.
#pragma once

#include <cstddef>

namespace dsc {

// One thread at a time.
class AddressRange {
 public:
  // Parts without memory hold zeros and take writes, which get pages from the system. With `faults` any
  // access to them ends in SIGSEGV instead, so that the use of an address that is no longer valid is found
  // where it happens.
  AddressRange(size_t bytes, bool faults);
  ~AddressRange();
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;

  std::byte* begin() const noexcept { return begin_; }

  // Offsets and lengths are whole pages.
  // Makes a part a second mapping of shared memory; false if the system refuses that.
  bool alias(size_t offset, std::byte* shared, size_t bytes) const noexcept;
  // Gives a part pages from the system, with what it holds.
  void provide(size_t offset, size_t bytes) const;
  // Takes the memory of a part away.
  void clear(size_t offset, size_t bytes) const;
  // Never gives the addresses back.
  void keep() noexcept { begin_ = nullptr; }

  static size_t page_bytes() noexcept;

 private:
  const size_t bytes_;
  const bool faults_;
  std::byte* begin_;
};

}  // namespace dsc
