#include "bootstrap/local_address.hpp"

#include <strings.h>
#include <sys/socket.h>

#include <algorithm>
#include <vector>

#include "base/guard.hpp"
#include "store/address.hpp"

namespace dsc {
namespace {

bool equals(const std::string& a, const std::string& b) { return ::strcasecmp(a.c_str(), b.c_str()) == 0; }

bool is_among(const SocketAddress& address, const std::vector<SocketAddress>& others) {
  return std::ranges::any_of(others,
                             [&](const SocketAddress& other) { return same_address(address, other); });
}

// Returns the addresses of this host's own name, or none if it cannot be resolved. The caller must check
// them, because the name may belong to another host.
std::vector<SocketAddress> addresses_of_own_name(Deadline deadline) {
  std::vector<SocketAddress> found;
  capture([&] { found = resolve(own_host_name(), 0, "this host's name", deadline); },
          [](dsc_result_t, const char*) {});
  return found;
}

}  // namespace

AddressLocation locate_address(const std::string& address, Deadline deadline) {
  if (equals(address, "localhost")) return AddressLocation::kLoopback;
  if (equals(address, own_host_name())) return AddressLocation::kThisHost;
  const auto found = resolve(address, 0, "MASTER_ADDR", deadline);
  const auto own = interface_addresses("", 0);
  const auto is_here = [&](const SocketAddress& one) { return !is_loopback(one) && is_among(one, own); };
  if (std::ranges::any_of(found, is_here)) return AddressLocation::kThisHost;
  return std::ranges::any_of(found, is_loopback) ? AddressLocation::kLoopback : AddressLocation::kElsewhere;
}

std::string own_address(const std::string& bind, Deadline deadline) {
  if (!bind.empty() && bind != "any") return to_text(listening_addresses(bind, bind, 0, deadline).front());
  const auto own = interface_addresses("", 0);
  for (const SocketAddress& address : addresses_of_own_name(deadline))
    if (reaches_further(address) && is_among(address, own)) return to_text(address);
  for (const sa_family_t family : {AF_INET, AF_INET6})
    for (const SocketAddress& address : own)
      if (address.storage.ss_family == family && reaches_further(address)) return to_text(address);
  return loopback_address();
}

}  // namespace dsc
