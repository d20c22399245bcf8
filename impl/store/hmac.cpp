#include "store/hmac.hpp"

#include <sodium.h>

namespace dsc {
namespace {

const unsigned char* data_of(std::string_view bytes) noexcept {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace

static_assert(crypto_auth_hmacsha256_BYTES == sizeof(Digest));

Digest hmac_sha256(std::string_view key, std::initializer_list<std::string_view> parts) noexcept {
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, data_of(key), key.size());
  for (const std::string_view part : parts) crypto_auth_hmacsha256_update(&state, data_of(part), part.size());
  Digest digest;
  crypto_auth_hmacsha256_final(&state, digest.data());
  sodium_memzero(&state, sizeof state);
  return digest;
}

bool equal_bytes(std::string_view a, std::string_view b) noexcept {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

Digest hkdf_extract(std::string_view salt, std::string_view secret) noexcept {
  return hmac_sha256(salt, {secret});
}

Digest hkdf_expand(const Digest& key, std::string_view purpose) noexcept {
  return hmac_sha256(bytes_of(key), {purpose, std::string_view("\x01", 1)});
}

void forget(Digest& secret) noexcept { sodium_memzero(secret.data(), secret.size()); }

}  // namespace dsc
