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
  fail_errno(error, "%.200s: its file system does not support locks", path.c_str());
}

FileLock::FileLock(int fd, const std::string& path)
    : fd_(fd), locked_(try_lock_file(fd, LockByte::kWriter, F_WRLCK, path)) {}

FileLock::~FileLock() {
  if (locked_) set_lock(fd_, LockByte::kWriter, F_UNLCK);
}

}  // namespace dsc
