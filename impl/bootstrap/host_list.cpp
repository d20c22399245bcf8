#include "bootstrap/host_list.hpp"

#include <cstddef>

namespace dsc {
namespace {

constexpr size_t kLongestHost = 253;  // maximum length of a name in the DNS

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_host_character(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '.' ||
         c == '_' || c == ':';
}

// Returns the first number of a list of ranges such as "01-03,7". Returns nullopt if the list is malformed.
std::optional<std::string_view> first_of_ranges(std::string_view ranges) {
  std::string_view first;
  bool digit_before = false, in_range = false;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const char c = ranges[i];
    if (is_digit(c)) {
      digit_before = true;
      continue;
    }
    if (!digit_before || (c != '-' && c != ',') || (c == '-' && in_range)) return std::nullopt;
    if (first.empty()) first = ranges.substr(0, i);
    in_range = c == '-';
    digit_before = false;
  }
  if (!digit_before) return std::nullopt;
  return first.empty() ? ranges : first;
}

// Scans JSON just far enough to find one list. Strings are read completely; other values are skipped by
// counting brackets.
class JsonScan {
 public:
  explicit JsonScan(std::string_view text) : text_(text) {}

  bool take(char c) {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos)
      ++at_;
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  // Reads a string and returns the text between its quotes. Escapes are not decoded.
  std::optional<std::string_view> string() {
    if (!take('"')) return std::nullopt;
    const size_t start = at_;
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '"') return text_.substr(start, at_++ - start);
      if (text_[at_] == '\\') ++at_;
    }
    return std::nullopt;
  }

  // Skips a value of any type, up to the comma or bracket after the value.
  bool skip_value() {
    for (size_t depth = 0; at_ < text_.size();) {
      const char c = text_[at_];
      if (depth == 0 && (c == ',' || c == '}' || c == ']')) return true;
      if (c == '"') {
        if (!string()) return false;
        continue;
      }
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') --depth;
      ++at_;
    }
    return false;
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::optional<std::string> plain_host(std::string_view text) {
  if (text.empty() || text.size() > kLongestHost) return std::nullopt;
  for (const char c : text)
    if (!is_host_character(c)) return std::nullopt;
  return std::string(text);
}

std::optional<std::string> host_before_colon(std::string_view text) {
  return plain_host(text.substr(0, text.find(':')));
}

std::optional<std::string> first_slurm_host(std::string_view list) {
  std::string host;
  bool complete = false;  // whether `host` is complete; the rest of the text is only validated
  for (size_t i = 0, name_start = 0; i <= list.size(); ++i) {
    if (i == list.size() || list[i] == ',') {
      if (i == name_start) return std::nullopt;
      name_start = i + 1;
      complete = true;
    } else if (list[i] == '[') {
      const size_t end = list.find(']', i);
      if (end == std::string_view::npos) return std::nullopt;
      const auto first = first_of_ranges(list.substr(i + 1, end - i - 1));
      if (!first) return std::nullopt;
      if (!complete) host += *first;
      i = end;
    } else if (list[i] == ':' || !is_host_character(list[i])) {
      return std::nullopt;
    } else if (!complete) {
      host += list[i];
    }
  }
  return plain_host(host);
}

std::optional<std::string> first_sagemaker_host(std::string_view json) {
  JsonScan scan(json);
  if (!scan.take('{')) return std::nullopt;
  do {
    const auto key = scan.string();
    if (!key || !scan.take(':')) return std::nullopt;
    if (*key == "hosts") {
      if (!scan.take('[')) return std::nullopt;
      const auto host = scan.string();
      return host ? plain_host(*host) : std::nullopt;
    }
    if (!scan.skip_value()) return std::nullopt;
  } while (scan.take(','));
  return std::nullopt;
}

}  // namespace dsc
