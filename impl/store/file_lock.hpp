// Locks on parts of a file that belong to its open description: the kernel, or the file server, drops them
// when the last descriptor is closed, however the process ended.
#pragma once

#include <fcntl.h>

#include <string>

namespace dsc {

// A byte that is locked; far behind all data.
enum class LockByte : off_t {
  kWriter = off_t{1} << 62,      // held while the file is read or written
  kUsers = (off_t{1} << 62) + 1  // shared by all who have it open
};

// `type` is F_RDLCK, F_WRLCK or F_UNLCK. False if somebody else's lock is in the way. Throws SYSTEM.
bool try_lock_file(int fd, LockByte byte, short type, const std::string& path);

// The writer's lock as long as it lives, if it could be had. Throws SYSTEM.
class FileLock {
 public:
  FileLock(int fd, const std::string& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  explicit operator bool() const noexcept { return locked_; }

 private:
  const int fd_;
  const bool locked_;
};

}  // namespace dsc
