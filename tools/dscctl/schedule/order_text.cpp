#include "dscctl/schedule/order_text.hpp"

#include <algorithm>
#include <map>

namespace dscctl::schedule {
namespace {

constexpr size_t kLongestPattern = 128;  // operations

char letter_of(int32_t op) {
  switch (op) {
    case DSC_PIPE_OP_FORWARD:
      return 'F';
    case DSC_PIPE_OP_BACKWARD_INPUT:
      return 'I';
    case DSC_PIPE_OP_BACKWARD_WEIGHT:
      return 'W';
    case DSC_PIPE_OP_BACKWARD:
      return 'B';
    default:
      return '.';
  }
}

std::string word_of(const dsc_pipe_compute_t& it) {
  std::string word(1, letter_of(it.op));
  if (word == ".") return word;
  if (it.chunk > 0) word += std::to_string(it.chunk);
  return it.overlaps == 1 ? word + "+" : word;
}

// True if every micro-batch follows from its position in the order. A backward pass counts as both of its
// halves.
bool is_counted(const std::vector<dsc_pipe_compute_t>& order, int32_t micro_batches, bool is_down) {
  std::map<std::pair<char, int32_t>, int32_t> counts;
  for (const dsc_pipe_compute_t& it : order) {
    const char letter = letter_of(it.op);
    if (letter == '.') continue;
    for (const char half : letter == 'B' ? std::string("IW") : std::string(1, letter)) {
      const int32_t count = counts[{half, it.chunk}]++;
      if (it.micro_batch != (is_down && half != 'F' ? micro_batches - 1 - count : count)) return false;
    }
  }
  return true;
}

// Returns how often the pattern of `length` words that starts at `at` repeats.
size_t repeats_at(const std::vector<std::string>& words, size_t at, size_t length) {
  size_t end = at + length;
  while (end < words.size() && words[end] == words[end - length]) ++end;
  return (end - at) / length;
}

}  // namespace

std::optional<std::string> order_text(const std::vector<dsc_pipe_compute_t>& order, int32_t micro_batches) {
  const bool is_up = is_counted(order, micro_batches, false);
  if (!is_up && !is_counted(order, micro_batches, true)) return {};
  std::vector<std::string> words;
  for (const dsc_pipe_compute_t& it : order) words.push_back(word_of(it));
  std::string text = is_up ? "" : "-";
  for (size_t at = 0; at < words.size();) {
    size_t best = 1, times = 1;
    for (size_t length = 1; length <= std::min(kLongestPattern, (words.size() - at) / 2); ++length)
      if (const size_t count = repeats_at(words, at, length); length * (count - 1) > best * (times - 1)) {
        best = length;
        times = count;
      }
    if (times > 1) text += "(";
    for (size_t i = at; i < at + best; ++i) text += words[i];
    if (times > 1) text += ")" + std::to_string(times);
    at += best * times;
  }
  return text;
}

}  // namespace dscctl::schedule
