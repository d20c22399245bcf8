#include "base/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "base/error.hpp"
#include "base/fd.hpp"

namespace dsc {
namespace {

// Returns a name that no other thread or process uses at the same time.
std::string temporary_name(const std::string& path) {
  static std::atomic<uint64_t> latest{0};
  return path + "." + std::to_string(getpid()) + "." + std::to_string(latest.fetch_add(1)) + ".part";
}

// Refuses paths that are not regular files. Renaming over a device node or a link would replace it by a
// regular file, which could damage the system if done as root.
void check_replaceable(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    fail(DSC_ERR_INVALID_ARG, "%.200s is a folder, a link or a device, expected a regular file or a new name",
         path.c_str());
}

void make_folder_of(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) fail_errno(error.value(), "the folder %.200s cannot be created", folder.c_str());
}

// Returns 0 or an errno value.
int write_all(int fd, std::string_view content) noexcept {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno != EINTR) return errno;
    if (written > 0) content.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

}  // namespace

void replace_file(const std::string& path, std::string_view content) {
  check_replaceable(path);
  make_folder_of(path);
  const std::string temporary = temporary_name(path);
  const UniqueFd file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) fail_errno(errno, "%.200s cannot be written", temporary.c_str());
  int error = write_all(file.get(), content);
  if (error == 0 && std::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return;
  ::unlink(temporary.c_str());
  fail_errno(error, "%.200s cannot be written", path.c_str());
}

}  // namespace dsc
