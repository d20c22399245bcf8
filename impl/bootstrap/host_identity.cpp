#include "bootstrap/host_identity.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/fd.hpp"

namespace dsc {
namespace {

// Without /proc (rare containers) the host's name has to do.
std::string boot_id() {
  char text[128];
  const UniqueFd file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  const ssize_t got = file ? ::read(file.get(), text, sizeof text) : -1;
  if (got >= 36) return std::string(text, 36);
  if (::gethostname(text, sizeof text) != 0) return "unknown";
  text[sizeof text - 1] = '\0';
  return std::string(text).substr(0, 36);
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

}  // namespace dsc
