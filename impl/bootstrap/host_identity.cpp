#include "bootstrap/host_identity.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.hpp"
#include "base/fd.hpp"

namespace dsc {
namespace {

constexpr size_t kBootIdBytes = 36;
constexpr const char* kBootIdFile = "/proc/sys/kernel/random/boot_id";

UniqueFd open_boot_id() {
  for (;;) {
    UniqueFd file(::open(kBootIdFile, O_RDONLY | O_CLOEXEC));
    if (file || errno == ENOENT || errno == EACCES) return file;
    // Fails, because a rank that continued with another identity would cause worse errors later.
    if (errno != EINTR) fail_errno(errno, "%s", kBootIdFile);
  }
}

std::string boot_id() {
  char text[128];
  const UniqueFd file = open_boot_id();
  for (size_t bytes = 0; file;) {
    const ssize_t got = ::read(file.get(), text + bytes, kBootIdBytes - bytes);
    if (got < 0 && errno != EINTR) fail_errno(errno, "%s", kBootIdFile);
    if (got > 0) bytes += static_cast<size_t>(got);
    if (bytes == kBootIdBytes) return std::string(text, bytes);
    if (got == 0) break;
  }
  // Without /proc, as in some containers, the host name is used as the identity.
  if (::gethostname(text, sizeof text) != 0) return "unknown";
  text[sizeof text - 1] = '\0';
  return std::string(text).substr(0, kBootIdBytes);
}

}  // namespace

std::string host_identity(const Environment& environment) {
  if (const auto chosen = environment("DSC_HOST_ID")) {
    if (chosen->size() > kHostIdentityBytes)
      fail(DSC_ERR_CONFIG, "DSC_HOST_ID has %zu characters, expected at most %zu", chosen->size(),
           kHostIdentityBytes);
    return *chosen;
  }
  struct stat network {};
  if (::stat("/proc/self/ns/net", &network) != 0) network.st_ino = 0;
  return boot_id() + ":" + std::to_string(network.st_ino);
}

std::string host_name(const Environment& environment) {
  char name[64] = {};
  if (const auto chosen = environment("DSC_HOST_ID")) return *chosen;
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

}  // namespace dsc
