// Memory of the program that other processes can reach: its pages were replaced by pages of a shared segment,
// at the same addresses and with the same contents.
#pragma once

#include <cstddef>

namespace dsc {

// The first and the last page may also hold other data of the program. Such a page stays private, and its
// part of the memory is copied between it and the segment in each operation. The caller must ensure that no
// other thread accesses the memory during open() and close().
class Window {
 public:
  // Throws INVALID_ARG if the memory cannot be replaced: a file backs it, it is shared or a stack, or this
  // process cannot write it.
  static void check(const void* memory, size_t bytes);
  // Returns the size of a segment that can hold this many bytes, at any position in a page.
  static size_t segment_bytes(size_t bytes) noexcept;

  // `segment` is a mapping of a segment. It must outlive the window.
  Window(void* memory, size_t bytes, std::byte* segment) noexcept;

  std::byte* begin() const noexcept { return begin_; }
  size_t bytes() const noexcept { return bytes_; }
  bool contains(const void* address) const noexcept { return address >= begin_ && address < begin_ + bytes_; }
  // Returns where in the segment an address of this memory is.
  size_t offset_of(const void* address) const noexcept {
    return static_cast<size_t>(static_cast<const std::byte*>(address) - first_page_);
  }

  // Replaces the pages. Throws NOMEM, and nothing has changed.
  void open();
  // Gives the memory private pages again. If that fails, it stays shared, and a log record says so.
  void close() noexcept;
  // Returns false if the program has unmapped or replaced pages of an open window. `detached` tells whether
  // parts have become private.
  bool is_mapped(bool detached) const;
  // Makes a part private while the window stays open.
  void detach(const void* start, size_t bytes);

  // Copies what a buffer has in private pages to the segment, before other ranks read the buffer.
  void show_ends(const void* buffer, size_t bytes) const noexcept;
  // Copies it back, after other ranks have written the buffer.
  void take_ends(void* buffer, size_t bytes) const noexcept;

 private:
  template <typename Copy>
  void for_each_end(const std::byte* buffer, size_t bytes, const Copy& copy) const noexcept;
  void restore();

  std::byte* const begin_;
  const size_t bytes_;
  std::byte* const first_page_;  // the start of the page with the first byte
  // The pages that are replaced; empty if no page is completely inside.
  std::byte* const shared_begin_;
  std::byte* const shared_end_;
  std::byte* const segment_;
};

}  // namespace dsc
