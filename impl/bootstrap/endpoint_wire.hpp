// The messages of an endpoint: a request for a descriptor, and the reply that carries the descriptor.
#pragma once

#include <cstdint>

namespace dsc {

inline constexpr uint64_t kEndpointMagic = 0x6d6574692d637364u;  // "dsc-item" in memory
inline constexpr uint32_t kEndpointVersion = 1;

struct RequestWire {
  uint64_t magic;
  uint32_t wire_version;
  uint32_t kind;
  uint8_t nonce[16];
  uint64_t id;
  uint32_t rank;
  uint32_t reserved;
};
static_assert(sizeof(RequestWire) == 48, "no hidden padding");

// A reply with DSC_OK carries one descriptor.
struct ReplyWire {
  uint64_t magic;
  uint32_t wire_version;
  int32_t code;
};
static_assert(sizeof(ReplyWire) == 16, "no hidden padding");

}  // namespace dsc
