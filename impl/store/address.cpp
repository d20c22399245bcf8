#include "store/address.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "base/guard.hpp"
#include "store/resolve.hpp"

namespace dsc {
namespace {

// Limit for resolving this host's own name with name servers. After this time, the addresses of the
// interfaces are used.
constexpr int kOwnNameMs = 3000;

SocketAddress with_port(const sockaddr* address, socklen_t bytes, uint16_t port) {
  SocketAddress result;
  std::memcpy(&result.storage, address, bytes);
  result.bytes = bytes;
  // The port is at the same offset in IPv4 and IPv6 addresses.
  reinterpret_cast<sockaddr_in*>(&result.storage)->sin_port = htons(port);
  return result;
}

std::vector<SocketAddress> resolve_name(const std::string& name, uint16_t port, const std::string& what,
                                        Deadline deadline) {
  const Addresses addresses = resolve_host(name, what, deadline);
  std::vector<SocketAddress> found;
  for (const addrinfo* entry = addresses.get(); entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) continue;
    const SocketAddress address = with_port(entry->ai_addr, entry->ai_addrlen, port);
    if (std::ranges::none_of(found, [&](const SocketAddress& other) { return same_address(address, other); }))
      found.push_back(address);
  }
  if (found.empty()) fail(DSC_ERR_CONFIG, "%s '%.100s' has no IP address", what.c_str(), name.c_str());
  return found;
}

}  // namespace

std::string own_host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

bool reaches_further(const SocketAddress& address) noexcept {
  if (is_loopback(address)) return false;
  return address.storage.ss_family == AF_INET ||
         !IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr);
}

std::vector<SocketAddress> interface_addresses(const std::string& name, uint16_t port) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) fail_errno(errno, "getifaddrs");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> interfaces(list, ::freeifaddrs);
  std::vector<SocketAddress> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const bool wanted = name.empty() ? (entry->ifa_flags & IFF_UP) != 0 : name == entry->ifa_name;
    if (!wanted || entry->ifa_addr == nullptr) continue;
    if (entry->ifa_addr->sa_family == AF_INET)
      found.push_back(with_port(entry->ifa_addr, sizeof(sockaddr_in), port));
    else if (entry->ifa_addr->sa_family == AF_INET6)
      found.push_back(with_port(entry->ifa_addr, sizeof(sockaddr_in6), port));
  }
  return found;
}

bool same_address(const SocketAddress& a, const SocketAddress& b) noexcept {
  return a.bytes == b.bytes && std::memcmp(&a.storage, &b.storage, a.bytes) == 0;
}

std::string to_text(const SocketAddress& address) {
  char text[NI_MAXHOST];
  const int error =
      ::getnameinfo(address.get(), address.bytes, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return error == 0 ? text : "?";
}

std::string host_and_port(const std::string& host, uint16_t port) {
  const bool brackets = host.find(':') != std::string::npos;
  return (brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

bool is_loopback(const SocketAddress& address) noexcept {
  if (address.storage.ss_family == AF_INET) {
    const auto& ip = reinterpret_cast<const sockaddr_in&>(address.storage);
    return ntohl(ip.sin_addr.s_addr) >> 24 == 127;
  }
  return address.storage.ss_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr);
}

std::string loopback_address() {
  bool has_six = false;
  std::vector<SocketAddress> own;
  // Ignores errors, because a sandbox may forbid listing the interfaces.
  capture([&] { own = interface_addresses("", 0); }, [](const Error&) {});
  for (const SocketAddress& address : own) {
    if (!is_loopback(address)) continue;
    if (address.storage.ss_family == AF_INET) return "127.0.0.1";
    has_six = true;
  }
  return has_six ? "::1" : "127.0.0.1";
}

std::vector<SocketAddress> resolve(const std::string& name, uint16_t port, const std::string& what,
                                   Deadline deadline) {
  if (::strcasecmp(name.c_str(), own_host_name().c_str()) != 0)
    return resolve_name(name, port, what, deadline);
  std::vector<SocketAddress> found;
  capture([&] { found = resolve_name(name, port, what, sooner(deadline, Deadline::after_ms(kOwnNameMs))); },
          [](const Error& error) {
            if (error.code() != DSC_ERR_CONFIG && error.code() != DSC_ERR_TIMEOUT) throw error;
          });
  if (!found.empty()) return found;
  for (const SocketAddress& address : interface_addresses("", port))
    if (reaches_further(address)) found.push_back(address);
  return found.empty() ? resolve_name(loopback_address(), port, what, deadline) : found;
}

std::vector<SocketAddress> listening_addresses(const std::string& host, const std::string& bind,
                                               uint16_t port, Deadline deadline) {
  if (bind.empty()) return resolve(host, port, "the master address", deadline);
  if (bind == "any") {
    // One IPv6 socket accepts connections of both families, if the kernel supports IPv6.
    if (!UniqueFd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)))
      return resolve("0.0.0.0", port, "any", deadline);
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    return {with_port(reinterpret_cast<const sockaddr*>(&any), sizeof any, port)};
  }
  if (::if_nametoindex(bind.c_str()) == 0) return resolve(bind, port, "DSC_BIND", deadline);
  auto addresses = interface_addresses(bind, port);
  if (addresses.empty()) fail(DSC_ERR_CONFIG, "DSC_BIND: interface %.100s has no IP address", bind.c_str());
  return addresses;
}

}  // namespace dsc
