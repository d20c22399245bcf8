// The first data that hosts exchange, before there are connections: the library that moves their bytes, a
// nonce that identifies a host's connections, and a separate address for each other host; or the reason why a
// host does not take part. These functions have no side effects.
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
  std::string address;  // the address at which it listens for the reader of this hello
};

// `addresses` is indexed by host. All have the same length, except that of this host, which is empty.
// Addresses differ in a few bytes (the port), and only these are encoded, because the store holds an address
// for every pair of hosts.
std::string encode_hello(std::string_view library, std::string_view nonce,
                         const std::vector<std::string>& addresses);
std::string encode_refusal(const Error& why);

// Decodes the part for host `reader`. Throws PROTOCOL for malformed bytes, or the refusal as an error of this
// host; `who` names the other host in messages.
TransportHello decode_hello(std::string_view bytes, int32_t reader, const std::string& who);

}  // namespace dsc
