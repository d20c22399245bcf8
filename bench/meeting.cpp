#include "meeting.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>

namespace bench {

void* map_shared(const std::string& path, size_t offset, size_t bytes) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), path);
  // Only enlarges the file, of which other ranks may already use more.
  int error = posix_fallocate(fd, static_cast<off_t>(offset + bytes - 1), 1);
  void* memory = MAP_FAILED;
  if (!error) {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
    error = errno;
  }
  close(fd);
  if (memory == MAP_FAILED) throw std::system_error(error, std::generic_category(), path);
  return memory;
}

Meeting::Meeting(const std::string& path, int ranks) : ranks_(ranks), waiting_(ranks) {
  if (ranks < 1 || ranks > max_ranks) throw std::invalid_argument("expected 1 to 64 ranks");
  page_ = static_cast<Page*>(map_shared(path, 0, sizeof(Page)));
}

Meeting::~Meeting() { munmap(page_, sizeof(Page)); }

void Meeting::wait() {
  target_ += static_cast<uint32_t>(ranks_);
  page_->arrived.fetch_add(1, std::memory_order_acq_rel);
  waiting_.until(
      [this] { return static_cast<int32_t>(page_->arrived.load(std::memory_order_acquire) - target_) >= 0; });
}

}  // namespace bench
