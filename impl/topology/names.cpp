#include "topology/names.hpp"

#include <algorithm>
#include <cstdint>

#include "base/edit_distance.hpp"
#include "base/error.hpp"
#include "base/joined.hpp"

namespace dsc {
namespace {

constexpr size_t kShownBytes = 40;

bool is_name_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool is_near(std::string_view word, const std::string& name) {
  if (word.size() > kAxisNameBytes) return false;
  if (!word.empty() && (name.starts_with(word) || word.starts_with(name))) return true;
  return 2 * edit_distance(word, name) <= std::max(word.size(), name.size());
}

}  // namespace

void check_axis_name(std::string_view name) {
  if (name.empty() || name.size() > kAxisNameBytes || !std::ranges::all_of(name, is_name_letter))
    fail(DSC_ERR_INVALID_ARG,
         "\"%s\" cannot be the name of an axis, expected 1 to %zu letters, digits or '_'",
         shown_words(name).c_str(), kAxisNameBytes);
}

std::vector<std::string_view> split_tokens(std::string_view text, const char* what) {
  std::vector<std::string_view> tokens;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find('-', start), text.size());
    const std::string_view token = text.substr(start, end - start);
    if (token.empty())
      fail(DSC_ERR_INVALID_ARG, "%s is \"%s\", expected names of axes, separated by '-'", what,
           shown_words(text).c_str());
    if (std::ranges::find(tokens, token) != tokens.end())
      fail(DSC_ERR_INVALID_ARG, "%s has the axis \"%s\" twice, expected each axis at most once", what,
           shown_words(token).c_str());
    tokens.push_back(token);
    start = end + 1;
  }
  return tokens;
}

std::string shown_words(std::string_view text) {
  std::string cut(text.substr(0, kShownBytes));
  std::ranges::replace_if(
      cut, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return text.size() > kShownBytes ? cut + "..." : cut;
}

std::string known_names(std::string_view word, std::span<const std::string> names) {
  const std::string* nearest = nullptr;
  for (const std::string& name : names)
    if (is_near(word, name) && (!nearest || edit_distance(word, name) < edit_distance(word, *nearest)))
      nearest = &name;
  return (nearest ? "; did you mean \"" + *nearest + "\"?" : std::string()) +
         " (known: " + joined(names, ", ") + ")";
}

}  // namespace dsc
