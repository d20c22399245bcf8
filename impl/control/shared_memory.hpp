// Anonymous shared memory: nothing has a name, so nothing stays behind when the processes are gone.
#pragma once

#include <cstddef>
#include <memory>

#include "base/fd.hpp"

namespace dsc {

enum class OnFork { kGone, kInherited };

// A mapping of a whole segment. All ranks of a process share one mapping per segment.
class Mapping {
 public:
  Mapping(int fd, size_t bytes, OnFork on_fork);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const noexcept { return data_; }
  size_t bytes() const noexcept { return bytes_; }

  // Puts private memory with the same contents in the place of these pages: from now on no other process
  // reaches them.
  void detach(size_t offset, size_t bytes);

 private:
  std::byte* data_;
  size_t bytes_;
};

// A memfd of 0600 whose pages are reserved and whose size is sealed. NOSPACE when there is no memory for
// `copies` such segments: as many ranks of this host make one at the same moment.
UniqueFd create_segment(const char* name, size_t bytes, size_t copies);

// Maps a segment, also one that another process made: its seals and size are checked first (PROTOCOL).
std::shared_ptr<Mapping> map_segment(int fd, size_t bytes, OnFork on_fork);

}  // namespace dsc
