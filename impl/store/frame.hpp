// What travels on an authenticated connection: length, counter, type, payload, and a code that only the two
// ends can compute. A frame that was changed, repeated, left out or moved is found. Pure.
//
//   u32 payload bytes | u64 counter | u8 type | payload | 16 bytes of HMAC-SHA256 of all before
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "store/hmac.hpp"

namespace dsc {

enum class FrameType : uint8_t {
  kRequest = 1,  // a StoreRequest; one at a time
  kReply = 2,    // a StoreReply; exactly one to each request
  kCancel = 3,   // the client waits no longer: the reply comes now, whatever it is
  kRoom = 4,     // u32: a request whose payload has so many bytes may come; the reply says when
};

inline constexpr size_t kFrameHeadBytes = 4 + 8 + 1;
inline constexpr size_t kFrameCodeBytes = 16;
// Two values and a key, and some room.
inline constexpr size_t kMaxPayloadBytes = (size_t{2} << 20) + (size_t{64} << 10);

// A request with a longer payload asks for room first: unread in its socket, it would be taken for a dead
// connection's after three seconds.
inline constexpr size_t kMostUnaskedBytes = 4096 - kFrameHeadBytes - kFrameCodeBytes;

// One direction of a connection; both ends have one for each.
class FrameCounter {
 public:
  explicit FrameCounter(const Digest& key) noexcept : key_(key) {}
  ~FrameCounter() { forget(key_); }
  FrameCounter(const FrameCounter&) = delete;
  FrameCounter& operator=(const FrameCounter&) = delete;

  // The next frame, whole.
  std::string seal(FrameType type, std::string_view payload);

  // Payload bytes that follow a head; nothing if there are too many, or if it is not the next frame.
  std::optional<size_t> payload_bytes(std::string_view head) const noexcept;

  // The type of a whole frame whose head was looked at before; nothing if its code is wrong. Its payload
  // stands between head and code.
  std::optional<FrameType> open(std::string_view frame) noexcept;

 private:
  Digest key_;
  uint64_t next_ = 0;
};

inline std::string_view payload_of(std::string_view frame) noexcept {
  return frame.substr(kFrameHeadBytes, frame.size() - kFrameHeadBytes - kFrameCodeBytes);
}

}  // namespace dsc
