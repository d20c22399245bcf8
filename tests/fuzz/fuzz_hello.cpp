// The hello messages between hosts: every host can read what was written, changed bytes are refused or mean
// what they say, and refusals are reported as they arrived.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "fuzz.hpp"
#include "transport/hello.hpp"

namespace dsc::fuzz {
namespace {

constexpr size_t kMostHosts = 12;
constexpr const char* kWho = "host 3 (rank 8)";

struct Read {
  std::optional<TransportHello> hello;
  dsc_result_t code = DSC_OK;
  std::string text;
};

Read read(Bytes bytes, int32_t reader) {
  Read result;
  try {
    result.hello = decode_hello(bytes, reader, kWho);
  } catch (const Error& error) {
    result.code = error.code();
    result.text = error.what();
    FUZZ_REQUIRE(result.code < DSC_OK && result.code >= DSC_ERR_INTERNAL);
    FUZZ_REQUIRE(result.text.starts_with(kWho));
  }
  return result;
}

// A parser that follows hello.hpp byte by byte: a kind, the library, the nonce, an address, and for each host
// what differs in its address.
class Model {
 public:
  explicit Model(Bytes bytes) : bytes_(bytes) {}

  std::optional<TransportHello> hello(int32_t reader) {
    TransportHello said;
    if (number(1) != 1) return std::nullopt;
    said.library = text(number(4));
    said.nonce = text(sizeof(Nonce));
    said.address = text(number(4));
    std::string difference;
    for (int32_t host = 0; host <= reader; ++host) difference = text(number(2));
    if (short_ || said.address.empty() || difference.size() % 2 != 0) return std::nullopt;
    for (size_t i = 0; i < difference.size(); i += 2) {
      const size_t place = static_cast<unsigned char>(difference[i]);
      if (place >= said.address.size()) return std::nullopt;
      said.address[place] = difference[i + 1];
    }
    return said;
  }

 private:
  std::string text(size_t size) {
    short_ = short_ || size > bytes_.size() - at_;
    if (short_) return {};
    at_ += size;
    return std::string(bytes_.substr(at_ - size, size));
  }

  size_t number(size_t size) {
    const std::string digits = text(size);
    size_t value = 0;
    for (size_t i = digits.size(); i > 0; --i) value = value << 8 | static_cast<unsigned char>(digits[i - 1]);
    return value;
  }

  Bytes bytes_;
  size_t at_ = 0;
  bool short_ = false;
};

void decoding(Input input) {
  const auto reader = static_cast<int32_t>(input.below(kMostHosts));
  const Bytes bytes = input.rest();
  const Read got = read(bytes, reader);
  const auto expected = Model(bytes).hello(reader);
  FUZZ_REQUIRE(got.hello.has_value() == expected.has_value());
  if (expected) {
    FUZZ_REQUIRE(got.hello->library == expected->library);
    FUZZ_REQUIRE(got.hello->nonce == expected->nonce);
    FUZZ_REQUIRE(got.hello->address == expected->address);
  } else if (bytes.empty() || bytes[0] != 2) {
    FUZZ_REQUIRE(got.code == DSC_ERR_PROTOCOL);
  }
}

// All addresses have the same length, as in the module, except the host's own address, which is empty.
void encoding(Input input) {
  std::string nonce(input.take(sizeof(Nonce)));
  nonce.resize(sizeof(Nonce));
  const size_t hosts = 1 + input.below(kMostHosts), own = input.below(hosts);
  const size_t bytes = 1 + input.below(200);
  std::vector<std::string> addresses;
  for (size_t host = 0; host < hosts; ++host) {
    std::string address(addresses.empty() ? Bytes() : addresses.back());
    address = input.take(bytes);
    address.resize(bytes, 'x');
    addresses.push_back(host == own ? "" : address);
  }
  const std::string library(input.take(input.below(20)));
  const std::string written = encode_hello(library, nonce, addresses);
  for (size_t host = 0; host < hosts; ++host) {
    const Read got = read(written, static_cast<int32_t>(host));
    if (host == own) continue;
    FUZZ_REQUIRE(got.hello.has_value() && got.hello->library == library && got.hello->nonce == nonce);
    FUZZ_REQUIRE(got.hello->address == addresses[host]);
  }
  FUZZ_REQUIRE(!read(written, static_cast<int32_t>(hosts)).hello);  // this host does not exist
  const size_t cut = input.byte() % written.size();
  FUZZ_REQUIRE(!read(Bytes(written).substr(0, cut), static_cast<int32_t>(hosts - 1)).hello);
}

void refusal(Input input) {
  const auto code = static_cast<dsc_result_t>(-1 - static_cast<int>(input.below(-DSC_ERR_INTERNAL)));
  const std::string text(input.until('\0'));
  const Error why(code, text.c_str());
  const Read got = read(encode_refusal(why), 0);
  FUZZ_REQUIRE(!got.hello && got.code == code);
  FUZZ_REQUIRE(Error(code, (std::string(kWho) + ": " + why.what()).c_str()).what() == got.text);
}

}  // namespace

void fuzz_hello(Bytes bytes) {
  Input input(bytes);
  constexpr void (*kParts[])(Input) = {decoding, encoding, refusal};
  kParts[input.below(std::size(kParts))](input);
}

}  // namespace dsc::fuzz
