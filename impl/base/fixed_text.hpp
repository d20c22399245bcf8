// Text in arrays of fixed size, for records in shared memory and for messages.
#pragma once

#include <array>
#include <concepts>
#include <cstdarg>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

namespace dsc {

// Returns the text up to its terminating zero. If another process has written no zero, returns the whole
// array.
template <size_t N>
std::string bounded_text(const char (&source)[N]) {
  return std::string(source, ::strnlen(source, N));
}

template <size_t N>
std::string bounded_text(const std::array<char, N>& source) {
  return std::string(source.data(), ::strnlen(source.data(), N));
}

// These append to the text in `to`. Text that does not fit is cut off, but never inside a UTF-8 character.
void append_text(char* to, size_t capacity, std::string_view text) noexcept;
void append_format(char* to, size_t capacity, const char* format, va_list args) noexcept;

// A text of at most N - 1 bytes that allocates nothing. It is trivially copyable, so that shared memory and
// messages can hold it.
template <size_t N>
class FixedText {
 public:
  FixedText() = default;
  template <std::convertible_to<std::string_view> Text>
  FixedText(const Text& text) noexcept {
    append_text(bytes_, N, text);
  }

  FixedText& operator+=(std::string_view text) noexcept {
    append_text(bytes_, N, text);
    return *this;
  }
  // Appends as printf() does.
  __attribute__((format(printf, 2, 3))) FixedText& add(const char* format, ...) noexcept {
    va_list args;
    va_start(args, format);
    add_list(format, args);
    va_end(args);
    return *this;
  }
  void add_list(const char* format, va_list args) noexcept { append_format(bytes_, N, format, args); }

  // Terminates a text that another process may have written without a zero.
  void bound() noexcept { bytes_[N - 1] = '\0'; }

  const char* c_str() const noexcept { return bytes_; }
  bool empty() const noexcept { return bytes_[0] == '\0'; }
  operator std::string_view() const noexcept { return bytes_; }
  std::string str() const { return bytes_; }

 private:
  char bytes_[N] = {};
};

}  // namespace dsc
