// Descriptors that forked children must not keep open: as long as a child holds a copy, peers do not see the
// parent's connection end, and locks are not released.
#pragma once

#include <utility>

#include "base/fd.hpp"

namespace dsc {

// Marks a descriptor to be closed in children: at once after fork(), otherwise at exec(). Any thread may call
// it. Descriptors above about a million are only closed at exec().
void close_in_child(int fd) noexcept;
// Removes the mark; must be called before the descriptor is closed in this process.
void keep_in_child(int fd) noexcept;

// Owns a descriptor that children do not inherit.
class ParentFd {
 public:
  ParentFd() noexcept = default;
  explicit ParentFd(UniqueFd fd) noexcept : fd_(std::move(fd)) { close_in_child(fd_.get()); }
  ParentFd(ParentFd&& other) noexcept = default;
  ParentFd& operator=(ParentFd&& other) noexcept {
    keep_in_child(fd_.get());
    fd_ = std::move(other.fd_);
    return *this;
  }
  ~ParentFd() { keep_in_child(fd_.get()); }

  int get() const noexcept { return fd_.get(); }

 private:
  UniqueFd fd_;
};

}  // namespace dsc
