// Addresses on the host that stay reserved, while the memory behind them is provided and removed.
#pragma once

#include <cstddef>

namespace dsc {

// One thread at a time.
class AddressRange {
 public:
  // Parts without memory hold zeros. Writes to them get pages from the system. With `faults`, any access to
  // them ends in SIGSEGV instead: the use of an address that is no longer valid is then found where it
  // happens.
  AddressRange(size_t bytes, bool faults);
  ~AddressRange();
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;

  std::byte* begin() const noexcept { return begin_; }

  // Offsets and lengths are whole pages.
  // Makes a part a second mapping of shared memory; false if the system refuses that.
  bool alias(size_t offset, std::byte* shared, size_t bytes) const noexcept;
  // Gives a part pages from the system, and keeps its contents.
  void provide(size_t offset, size_t bytes) const;
  // Removes the memory of a part.
  void clear(size_t offset, size_t bytes) const;
  // Never releases the addresses.
  void keep() noexcept { begin_ = nullptr; }

  static size_t page_bytes() noexcept;

 private:
  const size_t bytes_;
  const bool faults_;
  std::byte* begin_;
};

}  // namespace dsc
