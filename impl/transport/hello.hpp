// The first data that hosts exchange, before they have connections. It contains the name of the library that
// transfers their bytes, a nonce that identifies the connections of a host, and a separate address for each
// other host. A host that does not take part sends the reason instead. The functions have no side effects.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace dsc {

struct TransportHello {
  std::string library;  // dsc_transport_table.library
  std::string nonce;    // 16 bytes
  std::string address;  // the address at which the sender listens for the reader of this hello
};

// `addresses` is indexed by host. All addresses have the same length, except that of this host, which is
// empty. They differ only in a few bytes (the port), and only the differences are encoded, because the store
// must hold an address for every pair of hosts.
std::string encode_hello(std::string_view library, std::string_view nonce,
                         const std::vector<std::string>& addresses);
std::string encode_refusal(const Error& why);

// Decodes the part for host `reader`. Throws PROTOCOL for malformed bytes. If the other host does not take
// part, throws its reason as an error of this host. `who` is the name of the other host in messages.
TransportHello decode_hello(std::string_view bytes, int32_t reader, const std::string& who);

}  // namespace dsc
