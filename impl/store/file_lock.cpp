#include "store/file_lock.hpp"

#include <cerrno>

#include "base/error.hpp"

namespace dsc {
namespace {

int set_lock(int fd, LockByte byte, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(byte);
  lock.l_len = 1;
  int result;
  do result = ::fcntl(fd, F_OFD_SETLK, &lock);
  while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

}  // namespace

bool try_lock_file(int fd, LockByte byte, short type, const std::string& path) {
  const int error = set_lock(fd, byte, type);
  if (error == 0) return true;
  if (error == EAGAIN || error == EACCES) return false;
  fail_errno(error, "%.200s: its file system does not lock", path.c_str());
}

// Asks again and again: a blocking request has no deadline.
FileLock::FileLock(int fd, const std::string& path, Deadline deadline) : fd_(fd) {
  constexpr timespec kPeriod{0, 1'000'000};
  while (!try_lock_file(fd, LockByte::kWriter, F_WRLCK, path)) {
    if (deadline.passed()) fail(DSC_ERR_TIMEOUT, "%.200s: somebody else keeps it locked", path.c_str());
    nanosleep(&kPeriod, nullptr);
  }
}

FileLock::~FileLock() { set_lock(fd_, LockByte::kWriter, F_UNLCK); }

}  // namespace dsc
