// Descriptors that children must not keep: while one holds them, the other side of a connection does not see
// its parent die, and locks do not end.
#pragma once

#include <utility>

#include "base/fd.hpp"

namespace dsc {

// In a child made by fork() the descriptor is closed at once, in others when they exec(). Any thread. Numbers
// past a million are not kept.
void close_in_child(int fd) noexcept;
// Before the descriptor is closed in this process.
void keep_in_child(int fd) noexcept;

// A descriptor of this process alone.
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
