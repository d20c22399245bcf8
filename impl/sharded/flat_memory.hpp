// Host memory of flat buffers, whose parts can be given back to the system and keep their addresses.
#pragma once

#include <cstddef>

#include "comm/comm.hpp"

namespace dsc {

class FlatMemory {
 public:
  // Collective: memory that the ranks of each host share, in which operations move data fastest. All of it is
  // there until the end.
  static FlatMemory shared(Comm& group, size_t bytes);
  // Addresses only: memory comes with the first access, as zeros.
  static FlatMemory reserved(size_t bytes);

  FlatMemory(FlatMemory&& other) noexcept;
  FlatMemory& operator=(FlatMemory&&) = delete;
  ~FlatMemory();

  std::byte* data() const noexcept { return data_; }

  // Zeroes a part. Memory that is reserved goes back to the system; offsets and sizes are whole pages.
  void clear(size_t offset, size_t bytes) const noexcept;
  // Of memory that is reserved: close() gives a part back and makes any access to it fault, so that the use
  // of an address that is no longer valid is found where it happens. open() makes it accessible again.
  void close(size_t offset, size_t bytes) const;
  void open(size_t offset, size_t bytes) const;

  // Never frees the memory, because operations may still use it.
  void keep() noexcept { data_ = nullptr; }

  // Returns what offsets of parts must be multiples of: pages where memory is given back.
  static size_t alignment(bool is_shared) noexcept;

 private:
  FlatMemory(std::byte* data, size_t bytes, bool is_shared) noexcept
      : data_(data), bytes_(bytes), is_shared_(is_shared) {}

  std::byte* data_;
  size_t bytes_;
  bool is_shared_;
};

}  // namespace dsc
