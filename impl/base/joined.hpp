// Formats lists for messages.
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <type_traits>

namespace dsc {

// Returns the items with a separator between them; `text` converts one item to text or a number.
template <typename Items, typename Text = std::identity>
std::string joined(const Items& items, const char* separator, const Text& text = {}) {
  std::string all;
  const char* before = "";
  for (const auto& item : items) {
    all += before;
    before = separator;
    if constexpr (std::is_integral_v<std::decay_t<decltype(std::invoke(text, item))>>)
      all += std::to_string(std::invoke(text, item));
    else
      all += std::invoke(text, item);
  }
  return all;
}

// Returns the first `most` items, followed by the number of the remaining ones.
template <typename Items, typename Text>
std::string first_joined(const Items& items, size_t most, const Text& text) {
  std::string all = joined(std::span(items).first(std::min(items.size(), most)), ", ", text);
  if (items.size() > most) all += " and " + std::to_string(items.size() - most) + " more";
  return all;
}

}  // namespace dsc
