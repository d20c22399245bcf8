#include "transport/hello.hpp"

#include <algorithm>

#include "base/random.hpp"
#include "store/bytes.hpp"

namespace dsc {
namespace {

enum class Kind : uint8_t { kHello = 1, kRefusal = 2 };

// Writes the positions and bytes in which `text` differs from `base`. Both have the same length.
void write_difference(ByteWriter& writer, const std::string& base, const std::string& text) {
  std::string difference;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == base[i]) continue;
    difference += static_cast<char>(i);
    difference += text[i];
  }
  writer.number(static_cast<uint16_t>(difference.size()));
  writer.raw(difference);
}

bool apply_difference(std::string& text, std::string_view difference) {
  for (size_t i = 0; i + 1 < difference.size(); i += 2) {
    const auto at = static_cast<uint8_t>(difference[i]);
    if (at >= text.size()) return false;
    text[at] = difference[i + 1];
  }
  return difference.size() % 2 == 0;
}

[[noreturn]] void throw_refusal(ByteReader& reader, const std::string& who) {
  const auto code = static_cast<dsc_result_t>(reader.number<uint32_t>());
  const std::string text(reader.text());
  fail(code < DSC_OK && code >= DSC_ERR_INTERNAL ? code : DSC_ERR_PROTOCOL, "%s: %s", who.c_str(),
       text.c_str());
}

}  // namespace

std::string encode_hello(std::string_view library, std::string_view nonce,
                         const std::vector<std::string>& addresses) {
  const auto first = std::ranges::find_if(addresses, [](const auto& address) { return !address.empty(); });
  const std::string base = first == addresses.end() ? "" : *first;
  ByteWriter writer;
  writer.number(static_cast<uint8_t>(Kind::kHello));
  writer.text(library);
  writer.raw(nonce);
  writer.text(base);
  for (const std::string& address : addresses) write_difference(writer, base, address);
  return writer.take();
}

std::string encode_refusal(const Error& why) {
  ByteWriter writer;
  writer.number(static_cast<uint8_t>(Kind::kRefusal));
  writer.number(static_cast<uint32_t>(why.code()));
  writer.text(why.what());
  return writer.take();
}

// Skips the differences for hosts with lower indices until it reaches the difference for the reader.
TransportHello decode_hello(std::string_view bytes, int32_t reader, const std::string& who) {
  ByteReader from(bytes);
  const auto kind = static_cast<Kind>(from.number<uint8_t>());
  if (kind == Kind::kRefusal) throw_refusal(from, who);
  TransportHello hello;
  hello.library = from.text();
  hello.nonce = from.raw(sizeof(Nonce));
  hello.address = from.text();
  std::string_view difference;
  for (int32_t host = 0; host <= reader; ++host) difference = from.raw(from.number<uint16_t>());
  if (kind != Kind::kHello || !from.good() || hello.address.empty() ||
      !apply_difference(hello.address, difference))
    fail(DSC_ERR_PROTOCOL, "%s sent a hello of %zu bytes without an address for host %d", who.c_str(),
         bytes.size(), reader);
  return hello;
}

}  // namespace dsc
