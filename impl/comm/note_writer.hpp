// Writes the note of a call. Ranks compare it in addition to the call's fields, and the message about a
// mismatch shows it.
#pragma once

#include <algorithm>
#include <charconv>
#include <string_view>

#include "comm/division.hpp"
#include "control/call.hpp"

namespace dsc {

// Appends texts to a note. If a text does not fit, "..." is appended instead and later texts are dropped.
class NoteWriter {
 public:
  explicit NoteWriter(Call& call) : at_(call.note), end_(call.note + sizeof call.note - 1) {}

  void add(std::string_view text) noexcept {
    if (is_full_) return;
    if (text.size() + kMore.size() > static_cast<size_t>(end_ - at_)) {
      is_full_ = true;
      text = kMore;
    }
    at_ = std::copy(text.begin(), text.end(), at_);
  }
  void add(size_t number) noexcept {
    char digits[24];
    const auto [to, error] = std::to_chars(digits, digits + sizeof digits, number);
    add(std::string_view(digits, static_cast<size_t>(to - digits)));
  }
  void add(const Division& division, int size) noexcept {
    if (!division.parts()) return add(division.total());
    for (int rank = 0; rank < size; ++rank) {
      if (rank > 0) add("+");
      add(division.part(rank));
    }
  }
  bool is_full() const noexcept { return is_full_; }

 private:
  static constexpr std::string_view kMore = "...";

  char* at_;
  char* const end_;
  bool is_full_ = false;
};

}  // namespace dsc
