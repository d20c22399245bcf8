// Resolves names to IP addresses within a deadline, and lists the addresses of interfaces.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.hpp"

namespace dsc {

// An IPv4 or IPv6 address with a port.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
};

// Returns the numeric address, such as "127.0.0.1" or "::1".
std::string to_text(const SocketAddress& address);

// Returns "host:port", with brackets around an IPv6 address.
std::string host_and_port(const std::string& host, uint16_t port);

bool is_loopback(const SocketAddress& address) noexcept;
// Returns the address of "localhost": 127.0.0.1, or ::1 on a host that has only IPv6 loopback.
std::string loopback_address();
bool same_address(const SocketAddress& a, const SocketAddress& b) noexcept;  // the ports must be equal too

// Returns the addresses of one interface or, if the name is empty, of all interfaces that are up.
std::vector<SocketAddress> interface_addresses(const std::string& name, uint16_t port);

// Returns whether other hosts can use the address, which is neither loopback nor link-local.
bool reaches_further(const SocketAddress& address) noexcept;

std::string own_host_name();

// Returns all addresses of a name or of a numeric address, without duplicates and with their ports set. There
// is always at least one. If this host's own name cannot be resolved, returns the addresses of its
// interfaces. Throws CONFIG with the answer of the name servers, and TIMEOUT. `what` describes the name in
// errors.
std::vector<SocketAddress> resolve(const std::string& name, uint16_t port, const std::string& what,
                                   Deadline deadline);

// Returns the addresses at which a server that is known as `host` should listen. `bind` is the value of
// DSC_BIND: empty for the addresses of `host`, "any", the name of an interface, or another name or address.
// Throws what resolve() throws, and CONFIG if an interface has no address.
std::vector<SocketAddress> listening_addresses(const std::string& host, const std::string& bind,
                                               uint16_t port, Deadline deadline);

}  // namespace dsc
