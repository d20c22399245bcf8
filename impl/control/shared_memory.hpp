// Anonymous shared memory. It has no name, so nothing remains when the processes have ended.
#pragma once

#include <cstddef>
#include <memory>

#include "base/fd.hpp"

namespace dsc {

enum class OnFork { kGone, kInherited };

// Replaces mapped pages by private ones with the same contents. Afterwards no other process can access them.
// Whole pages change, also those that the range only touches. Throws NOMEM.
void make_private(std::byte* start, size_t bytes);

// A mapping of a whole segment. All ranks of a process share one mapping per segment.
class Mapping {
 public:
  Mapping(int fd, size_t bytes, OnFork on_fork);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const noexcept { return data_; }
  size_t bytes() const noexcept { return bytes_; }

 private:
  std::byte* data_;
  size_t bytes_;
};

// Creates a memfd that only this user may open, with reserved pages and a sealed size. `copies` is the number
// of ranks of this host that create such a segment at the same time. `appended` is a number of further bytes,
// which errors do not mention. Throws NOSPACE if memory does not suffice for all of them.
UniqueFd create_segment(const char* name, size_t bytes, size_t copies, size_t appended = 0);

// Maps a segment, which may belong to another process. Throws PROTOCOL if its seals or its size are wrong.
std::shared_ptr<Mapping> map_segment(int fd, size_t bytes, OnFork on_fork);

}  // namespace dsc
