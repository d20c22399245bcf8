#include "bootstrap/local_address.hpp"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/error.hpp"
#include "store/resolve.hpp"

namespace dsc {
namespace {

using Interfaces = std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)>;

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

}  // namespace

bool is_local_address(const std::string& address, Deadline deadline) {
  if (is_own_name(address)) return true;
  const Addresses addresses = resolve_host(address, "MASTER_ADDR", deadline);
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) fail_errno(errno, "getifaddrs");
  const Interfaces interfaces(list, ::freeifaddrs);
  for (const addrinfo* entry = addresses.get(); entry != nullptr; entry = entry->ai_next) {
    if (is_loopback(entry->ai_addr)) return true;
    for (const ifaddrs* own = interfaces.get(); own != nullptr; own = own->ifa_next)
      if (own->ifa_addr != nullptr && same_address(entry->ai_addr, own->ifa_addr)) return true;
  }
  return false;
}

}  // namespace dsc
