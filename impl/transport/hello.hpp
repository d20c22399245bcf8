// What a host says about itself before there are connections: a number by which they are known, and for each
// other host an address of its own. Or why it does not take part. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace dsc {

struct TransportHello {
  std::string nonce;    // of 16 bytes
  std::string address;  // at which it awaits the reader
};

// `addresses` by host, all of one length but the own one, which is empty. They differ in a few bytes (the
// port), so that only these are told: with many hosts the store has to hold this for every two of them.
std::string encode_hello(std::string_view nonce, const std::vector<std::string>& addresses);
std::string encode_refusal(const Error& why);

// For host `reader`. Throws PROTOCOL, or the refusal as this host's error; `who` names the other one.
TransportHello decode_hello(std::string_view bytes, int32_t reader, const std::string& who);

}  // namespace dsc
