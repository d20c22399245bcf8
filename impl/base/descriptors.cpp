#include "base/descriptors.hpp"

#include <dirent.h>
#include <sys/resource.h>

#include "base/error.hpp"

namespace dsc {
namespace {

// Returns the number of open descriptors of this process, or 0 if it cannot be determined.
size_t open_descriptors() {
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  size_t entries = 0;
  while (::readdir(folder) != nullptr) ++entries;
  ::closedir(folder);
  constexpr size_t kNotOurs = 3;  // ".", ".." and the descriptor of the open folder are not counted
  return entries < kNotOurs ? 0 : entries - kNotOurs;
}

}  // namespace

void check_descriptors(size_t more, const std::string& who) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const size_t open = open_descriptors();
  const size_t needed = open + more;
  if (limit.rlim_cur >= needed) return;
  fail(DSC_ERR_CONFIG,
       "%s and needs about %zu more file descriptors, but this process has %zu and may have %llu: run "
       "ulimit -n %zu before it starts",
       who.c_str(), more, open, static_cast<unsigned long long>(limit.rlim_cur), needed);
}

}  // namespace dsc
