#include "bootstrap/local_address.hpp"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "base/thread.hpp"

namespace dsc {
namespace {

using Interfaces = std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)>;
using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET)
    return (ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24) == 127;
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

bool same_address(const sockaddr* a, const sockaddr* b) {
  if (a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET)
    return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(b)->sin_addr.s_addr;
  return a->sa_family == AF_INET6 &&
         std::memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                     &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr, sizeof(in6_addr)) == 0;
}

bool is_own_name(const std::string& name) {
  char own[256];
  if (::strcasecmp(name.c_str(), "localhost") == 0) return true;
  if (::gethostname(own, sizeof own) != 0) return false;
  own[sizeof own - 1] = '\0';
  return ::strcasecmp(name.c_str(), own) == 0;
}

struct Resolved {
  int error;
  int system_error;
  Addresses addresses;
};

Resolved resolve(const std::string& name, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(name.c_str(), nullptr, &hints, &found);
  return {error, errno, Addresses(error == 0 ? found : nullptr, ::freeaddrinfo)};
}

// getaddrinfo() knows no deadline, so a thread of its own waits for it, and is left alone when it takes too
// long.
Resolved resolve_until(const std::string& name, Deadline deadline) {
  constexpr int64_t kLongestMs = 3'600'000;
  std::packaged_task<Resolved()> task([name] { return resolve(name, 0); });
  std::future<Resolved> answer = task.get_future();
  start_thread("dsc-resolve", [task = std::move(task)]() mutable { task(); }).detach();
  const std::chrono::milliseconds wait(std::min(deadline.remaining_ms(), kLongestMs));
  if (answer.wait_for(wait) == std::future_status::ready) return answer.get();
  fail(DSC_ERR_TIMEOUT, "the name servers did not resolve MASTER_ADDR '%.100s' in time", name.c_str());
}

}  // namespace

bool is_local_address(const std::string& address, Deadline deadline) {
  if (is_own_name(address)) return true;
  Resolved resolved = resolve(address, AI_NUMERICHOST);
  if (resolved.error == EAI_NONAME) resolved = resolve_until(address, deadline);
  if (resolved.error != 0)
    fail(
        DSC_ERR_CONFIG, "MASTER_ADDR '%.100s' cannot be resolved: %s", address.c_str(),
        resolved.error == EAI_SYSTEM ? std::strerror(resolved.system_error) : ::gai_strerror(resolved.error));
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) fail_errno(errno, "getifaddrs");
  const Interfaces interfaces(list, ::freeifaddrs);
  for (const addrinfo* entry = resolved.addresses.get(); entry != nullptr; entry = entry->ai_next) {
    if (is_loopback(entry->ai_addr)) return true;
    for (const ifaddrs* own = interfaces.get(); own != nullptr; own = own->ifa_next)
      if (own->ifa_addr != nullptr && same_address(entry->ai_addr, own->ifa_addr)) return true;
  }
  return false;
}

}  // namespace dsc
