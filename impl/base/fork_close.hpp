// Closes descriptors in forked children. While a child holds a copy of a descriptor, peers do not notice that
// the parent's connection has ended, and file locks are not released.
#pragma once

#include <utility>

#include "base/fd.hpp"

namespace dsc {

// Marks a descriptor to be closed in child processes right after fork(). Any thread may call this.
// Descriptors above about a million are closed only at exec().
void close_in_child(int fd) noexcept;
// Removes the mark. Must be called before this process closes the descriptor.
void keep_in_child(int fd) noexcept;

// Owns a descriptor that child processes do not inherit.
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
