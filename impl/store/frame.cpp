#include "store/frame.hpp"

#include "store/bytes.hpp"

namespace dsc {
namespace {

std::string_view code_of(const Digest& digest) noexcept {
  return bytes_of(digest).substr(0, kFrameCodeBytes);
}

}  // namespace

std::string FrameCounter::seal(FrameType type, std::string_view payload) {
  ByteWriter writer;
  writer.number(static_cast<uint32_t>(payload.size()));
  writer.number(next_++);
  writer.number(static_cast<uint8_t>(type));
  writer.raw(payload);
  std::string frame = writer.take();
  frame += code_of(hmac_sha256(bytes_of(key_), {frame}));
  return frame;
}

std::optional<size_t> FrameCounter::payload_bytes(std::string_view head) const noexcept {
  ByteReader reader(head);
  const size_t bytes = reader.number<uint32_t>();
  const auto counter = reader.number<uint64_t>();
  if (!reader.good() || bytes > kMaxPayloadBytes || counter != next_) return std::nullopt;
  return bytes;
}

std::optional<FrameType> FrameCounter::open(std::string_view frame) noexcept {
  const size_t signed_bytes = frame.size() - kFrameCodeBytes;
  const Digest digest = hmac_sha256(bytes_of(key_), {frame.substr(0, signed_bytes)});
  if (!equal_bytes(code_of(digest), frame.substr(signed_bytes))) return std::nullopt;
  ++next_;
  const auto type = static_cast<FrameType>(frame[kFrameHeadBytes - 1]);
  if (type < FrameType::kRequest || type > FrameType::kRoom) return std::nullopt;
  return type;
}

}  // namespace dsc
