// 128 random bits from the kernel, which identify incarnations of a world and make names that cannot be
// guessed.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace dsc {

using Nonce = std::array<uint8_t, 16>;

Nonce random_nonce();
std::string hex(const Nonce& nonce);

}  // namespace dsc
