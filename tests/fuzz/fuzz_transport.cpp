// What is sent between a store's client and its server. If a stream of frames was changed anywhere, exactly
// the frames before the first change are accepted. A decoded message equals the encoded one, and needs memory
// in proportion to its size.
#include <sanitizer/allocator_interface.h>

#include <string>
#include <vector>

#include "fuzz.hpp"
#include "store/frame.hpp"
#include "store/handshake.hpp"
#include "store/request.hpp"

namespace dsc::fuzz {
namespace {

constexpr size_t kPlaces = 256;

// The key depends on the input. With a fixed key libFuzzer would learn valid codes, because it sees
// comparisons.
Digest key_of(const char* owner, Input input) { return hmac_sha256(owner, {input.rest()}); }

std::vector<std::string> sealed_frames(Input& input, const Digest& key) {
  FrameCounter sender(key);
  std::vector<std::string> frames;
  for (size_t n = 1 + input.below(6); n > 0; --n) {
    const auto type = static_cast<FrameType>(1 + input.below(4));
    frames.push_back(sender.seal(type, input.take(input.byte())));
  }
  return frames;
}

void change_frames(std::vector<std::string>& frames, Input& input) {
  const size_t one = input.below(frames.size()), other = input.below(frames.size());
  switch (input.below(4)) {
    case 0:
      return std::swap(frames[one], frames[other]);
    case 1:
      frames.insert(frames.begin() + static_cast<ptrdiff_t>(one), std::string(frames[other]));
      return;
    case 2:
      frames[one].swap(frames[other].append(frames[one]));
      return;
    default:
      if (frames.size() > 1) frames.erase(frames.begin() + static_cast<ptrdiff_t>(one));
  }
}

void change_bytes(std::string& stream, Input& input) {
  const size_t place = (input.byte() * kPlaces + input.byte()) % stream.size();
  switch (input.below(4)) {
    case 0:
      stream[place] = static_cast<char>(stream[place] ^ (1 << input.below(8)));
      return;
    case 1:
      stream.resize(place);
      return;
    case 2:
      stream.insert(place, input.take(input.below(32)));
      return;
    default:
      stream.erase(place, input.byte());
  }
}

// Takes one frame from the front. Returns nothing if the receiver refuses it or it is not complete.
std::string take_frame(FrameCounter& receiver, Bytes& stream) {
  if (stream.size() < kFrameHeadBytes) return {};
  const auto payload = receiver.payload_bytes(stream.substr(0, kFrameHeadBytes));
  if (!payload) return {};
  FUZZ_REQUIRE(*payload <= kMaxPayloadBytes);
  const size_t bytes = kFrameHeadBytes + *payload + kFrameCodeBytes;
  if (stream.size() < bytes) return {};
  const std::string frame(stream.substr(0, bytes));
  const auto type = receiver.open(frame);
  if (!type) return {};
  FUZZ_REQUIRE(frame[kFrameHeadBytes - 1] == static_cast<char>(*type));
  stream.remove_prefix(bytes);
  return frame;
}

void frames(Input input) {
  const Digest key = key_of("sender", input), other_key = key_of("stranger", input);
  std::vector<std::string> frames = sealed_frames(input, key);
  const std::vector<std::string> sent = frames;
  for (size_t n = input.below(3); n > 0; --n) change_frames(frames, input);
  std::string stream;
  for (const std::string& frame : frames) stream += frame;
  while (!input.empty() && !stream.empty()) change_bytes(stream, input);
  Bytes rest = stream, expected = stream;
  FrameCounter receiver(key);
  for (const std::string& frame : sent) {
    const bool unchanged = expected.starts_with(frame);
    const std::string taken = take_frame(receiver, rest);
    FUZZ_REQUIRE(taken == (unchanged ? frame : std::string()));
    if (!unchanged) return;
    FUZZ_REQUIRE(payload_of(taken).size() + kFrameHeadBytes + kFrameCodeBytes == frame.size());
    expected.remove_prefix(frame.size());
  }
  FUZZ_REQUIRE(take_frame(receiver, rest).empty());
  FrameCounter stranger(other_key);
  rest = stream;
  FUZZ_REQUIRE(take_frame(stranger, rest).empty());
}

// The rest of a first message of another version is not read.
template <typename Message>
void check_message(Bytes bytes, size_t whole, const std::optional<Message>& message) {
  const std::string magic = encode(Message{}).substr(0, sizeof(uint64_t));
  const bool ours = bytes.size() >= sizeof(uint64_t) + sizeof(uint32_t) && bytes.starts_with(magic);
  if (!message) {
    FUZZ_REQUIRE(!ours || (bytes[8] == static_cast<char>(kStoreVersion) && bytes.size() != whole));
    return;
  }
  FUZZ_REQUIRE(ours);
  const std::string again = encode(*message);
  FUZZ_REQUIRE(again.size() == whole);
  if (message->version == kStoreVersion) FUZZ_REQUIRE(again == bytes);
}

void handshake(Input input) {
  // Half of the inputs begin correctly.
  const bool begun = input.below(2) == 1;
  const std::string start = begun ? encode(ServerHello{}).substr(0, 12) : std::string();
  const std::string bytes = start + std::string(input.rest());
  check_message(bytes, kServerHelloBytes, decode_server_hello(bytes));
  check_message(bytes, kClientHelloBytes, decode_client_hello(bytes));
}

size_t heap_bytes() { return __sanitizer_get_current_allocated_bytes(); }

// An empty key takes 4 bytes to send, but a string of 32 bytes to keep. Vectors grow to twice their size.
constexpr size_t kMostGrowth = 2 * sizeof(std::string) / sizeof(uint32_t);
constexpr size_t kOverhead = 1024;

void decoding(Input input) {
  const Bytes bytes = input.rest();
  const size_t before = heap_bytes();
  const auto request = decode_request(bytes);
  const auto reply = decode_reply(bytes);
  FUZZ_REQUIRE(heap_bytes() <= before + kMostGrowth * bytes.size() + kOverhead);
  if (request) FUZZ_REQUIRE(encode(*request) == bytes);
  FUZZ_REQUIRE(reply.has_value() == (bytes.size() >= sizeof(uint32_t) + sizeof(uint64_t)));
  if (reply) FUZZ_REQUIRE(encode(*reply) == bytes);
}

int64_t number_of(Input& input) {
  uint64_t number = 0;
  for (const char c : input.take(input.below(9))) number = number << 8 | static_cast<uint8_t>(c);
  return static_cast<int64_t>(number);
}

void encoding(Input input) {
  StoreRequest request;
  request.op = static_cast<StoreOp>(1 + input.below(static_cast<size_t>(kLastStoreOp)));
  request.number = number_of(input);
  request.value = input.take(input.byte());
  request.expected = input.take(input.byte());
  while (!input.empty()) request.keys.emplace_back(input.take(input.byte()));
  const auto back = decode_request(encode(request));
  FUZZ_REQUIRE(back.has_value());
  FUZZ_REQUIRE(back->op == request.op && back->number == request.number && back->value == request.value);
  FUZZ_REQUIRE(back->expected == request.expected && back->keys == request.keys);
  const StoreReply reply{static_cast<dsc_result_t>(static_cast<int32_t>(request.number)), request.number,
                         request.value};
  const auto reply_back = decode_reply(encode(reply));
  FUZZ_REQUIRE(reply_back && reply_back->code == reply.code);
  FUZZ_REQUIRE(reply_back->number == reply.number && reply_back->value == reply.value);
}

}  // namespace

void fuzz_transport(Bytes bytes) {
  Input input(bytes);
  constexpr void (*kParts[])(Input) = {frames, handshake, decoding, encoding};
  const size_t part = input.below(std::size(kParts));
  kParts[part](input);
}

}  // namespace dsc::fuzz
