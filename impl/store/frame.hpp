// The frames of an authenticated connection: length, counter, type, payload, and a code that only the two
// ends can compute. A frame that was modified, repeated, dropped or reordered is detected. No side effects.
//
//   u32 payload bytes | u64 counter | u8 type | payload | 16 bytes of HMAC-SHA256 over everything before
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
  kRequest = 1,  // a StoreRequest; only one at a time
  kReply = 2,    // a StoreReply; exactly one per request
  kCancel = 3,   // the client stops waiting: the server replies at once
  kRoom = 4,     // u32: asks to send a request with a payload of that many bytes; the reply says when
};

inline constexpr size_t kFrameHeadBytes = 4 + 8 + 1;
inline constexpr size_t kFrameCodeBytes = 16;
// Size for two values and a key, with a margin.
inline constexpr size_t kMaxPayloadBytes = (size_t{2} << 20) + (size_t{64} << 10);

// Requests with a longer payload ask for admission first: data that the server leaves unread in its socket
// would be mistaken for a dead connection after three seconds.
inline constexpr size_t kMostUnaskedBytes = 4096 - kFrameHeadBytes - kFrameCodeBytes;

// One direction of a connection; both ends have one for each direction.
class FrameCounter {
 public:
  explicit FrameCounter(const Digest& key) noexcept : key_(key) {}
  ~FrameCounter() { forget(key_); }
  FrameCounter(const FrameCounter&) = delete;
  FrameCounter& operator=(const FrameCounter&) = delete;

  // Returns the next frame, complete.
  std::string seal(FrameType type, std::string_view payload);

  // Returns the number of payload bytes after a head; nullopt if there are too many, or if it is not the head
  // of the next frame.
  std::optional<size_t> payload_bytes(std::string_view head) const noexcept;

  // Returns the type of a complete frame whose head was checked before; nullopt if its code is wrong. The
  // payload lies between head and code.
  std::optional<FrameType> open(std::string_view frame) noexcept;

 private:
  Digest key_;
  uint64_t next_ = 0;
};

inline std::string_view payload_of(std::string_view frame) noexcept {
  return frame.substr(kFrameHeadBytes, frame.size() - kFrameHeadBytes - kFrameCodeBytes);
}

}  // namespace dsc
