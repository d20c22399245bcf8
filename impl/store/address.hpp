// From names to addresses of the internet, by a deadline.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.hpp"

namespace dsc {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
};

// "127.0.0.1", "::1"
std::string to_text(const SocketAddress& address);

// "host:port", with brackets around an IPv6 address.
std::string host_and_port(const std::string& host, uint16_t port);

bool is_loopback(const SocketAddress& address) noexcept;
bool same_address(const SocketAddress& a, const SocketAddress& b) noexcept;  // and the same port

// The addresses of one interface, or of all that are up if the name is empty.
std::vector<SocketAddress> interface_addresses(const std::string& name, uint16_t port);

// Says whether other hosts can use an address: it is neither of this host alone nor of one cable alone.
bool reaches_further(const SocketAddress& address) noexcept;

std::string own_host_name();

// All addresses of a name or number, without duplicates, with their ports set; never empty. This host's own
// name needs no resolver: if nobody knows it, it means the addresses of the interfaces. Throws CONFIG (the
// name servers' answer), TIMEOUT. Errors call the name `what`.
std::vector<SocketAddress> resolve(const std::string& name, uint16_t port, const std::string& what,
                                   Deadline deadline);

// Where a server that is known as `host` listens. `bind` is what DSC_BIND says: empty (the addresses of
// `host`), "any", the name of an interface, or another name or address. Throws CONFIG as well if an interface
// has no address.
std::vector<SocketAddress> listening_addresses(const std::string& host, const std::string& bind,
                                               uint16_t port, Deadline deadline);

}  // namespace dsc
