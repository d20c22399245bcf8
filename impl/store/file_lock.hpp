// Locks on parts of a file that belong to the open file description. The kernel or the file server releases
// them when the last descriptor is closed, even if the process was killed.
#pragma once

#include <fcntl.h>

#include <string>

namespace dsc {

// Offsets of the bytes that are locked. They are far beyond all data of the file.
enum class LockByte : off_t {
  kWriter = off_t{1} << 62,      // locked by a process while it reads or writes the file
  kUsers = (off_t{1} << 62) + 1  // locked with a shared lock by every process that has the file open
};

// Sets or releases a lock without waiting. `type` is F_RDLCK, F_WRLCK or F_UNLCK. Returns false if another
// lock conflicts. Throws SYSTEM.
bool try_lock_file(int fd, LockByte byte, short type, const std::string& path);

// Tries to get the writer's lock, and holds it until destruction. operator bool returns whether the lock was
// free. Throws SYSTEM.
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
