// 128 random bits from the kernel. They distinguish one run of a world from the next, and make names that
// cannot be guessed.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace dsc {

using Nonce = std::array<uint8_t, 16>;

Nonce random_nonce();
std::string hex(const Nonce& nonce);

}  // namespace dsc
