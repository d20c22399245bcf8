// The frames of an authenticated connection. Each has a length, a counter, a type, a payload, and an
// authentication code that only client and server can compute. A frame that was modified, repeated, dropped
// or reordered is detected. The functions have no side effects.
//
//   u32 payload bytes | u64 counter | u8 type | payload | 16 bytes of HMAC-SHA256 over all these fields
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "store/hmac.hpp"

namespace dsc {

// Types of frames.
enum class FrameType : uint8_t {
  kRequest = 1,  // a StoreRequest; only one may be open at a time
  kReply = 2,    // a StoreReply; exactly one for each request
  kCancel = 3,   // the client stops waiting, so the server replies immediately
  // The payload is a u32. The client announces a request with a payload of that many bytes, and the reply
  // allows it to send the request.
  kRoom = 4,
};

inline constexpr size_t kFrameHeadBytes = 4 + 8 + 1;
inline constexpr size_t kFrameCodeBytes = 16;
// The maximum size of a payload. It suffices for two values and a key, with a margin.
inline constexpr size_t kMaxPayloadBytes = (size_t{2} << 20) + (size_t{64} << 10);

// A request with a longer payload must be admitted by the server first. Otherwise the server might leave its
// data unread in the socket, and after three seconds the connection would be taken for dead.
inline constexpr size_t kMostUnaskedBytes = 4096 - kFrameHeadBytes - kFrameCodeBytes;

// Seals and opens the frames of one direction of a connection. Client and server have one for each direction.
class FrameCounter {
 public:
  explicit FrameCounter(const Digest& key) noexcept : key_(key) {}
  ~FrameCounter() { forget(key_); }
  FrameCounter(const FrameCounter&) = delete;
  FrameCounter& operator=(const FrameCounter&) = delete;

  // Returns the next frame in its complete form.
  std::string seal(FrameType type, std::string_view payload);

  // Returns the number of payload bytes that follow a head. Returns nullopt if there are too many, or if it
  // is not the head of the next frame.
  std::optional<size_t> payload_bytes(std::string_view head) const noexcept;

  // Returns the type of a complete frame whose head was checked before, or nullopt if its authentication code
  // is wrong. The payload is between the head and the authentication code.
  std::optional<FrameType> open(std::string_view frame) noexcept;

 private:
  Digest key_;
  uint64_t next_ = 0;
};

inline std::string_view payload_of(std::string_view frame) noexcept {
  return frame.substr(kFrameHeadBytes, frame.size() - kFrameHeadBytes - kFrameCodeBytes);
}

}  // namespace dsc
