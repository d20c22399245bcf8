// Serializes numbers (little endian) and texts into a string of bytes, and reads them again. The reader never
// reads past the end.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace dsc {

class ByteWriter {
 public:
  template <std::unsigned_integral Number>
  void number(Number value) {
    for (size_t i = 0; i < sizeof value; ++i) bytes_ += static_cast<char>(value >> (8 * i) & 0xff);
  }

  void text(std::string_view text) {
    number(static_cast<uint32_t>(text.size()));
    bytes_ += text;
  }

  void raw(std::string_view bytes) { bytes_ += bytes; }

  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// After the first read past the end, all results are empty or 0, and good() returns false.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  template <std::unsigned_integral Number>
  Number number() {
    const std::string_view bytes = raw(sizeof(Number));
    uint64_t value = 0;
    for (size_t i = 0; i < bytes.size(); ++i)
      value |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    return static_cast<Number>(value);
  }

  std::string_view text() { return raw(number<uint32_t>()); }

  std::string_view raw(size_t bytes) {
    good_ = good_ && bytes <= rest_.size();
    if (!good_) return {};
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }

  size_t left() const { return rest_.size(); }
  bool good() const { return good_; }
  bool at_end() const { return good_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool good_ = true;
};

}  // namespace dsc
