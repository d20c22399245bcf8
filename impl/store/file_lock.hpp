// Locks on parts of a file that belong to the open file description: the kernel or the file server releases
// them when the last descriptor is closed, however the process ended.
#pragma once

#include <fcntl.h>

#include <string>

namespace dsc {

// Offsets of the bytes that are locked, far beyond all data.
enum class LockByte : off_t {
  kWriter = off_t{1} << 62,      // held while the file is read or written
  kUsers = (off_t{1} << 62) + 1  // a shared lock of every process that has the file open
};

// Sets or releases a lock without waiting; `type` is F_RDLCK, F_WRLCK or F_UNLCK. Returns false if another
// lock conflicts. Throws SYSTEM.
bool try_lock_file(int fd, LockByte byte, short type, const std::string& path);

// Holds the writer's lock during its lifetime, if it was free; check with operator bool. Throws SYSTEM.
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
