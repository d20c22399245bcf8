#include "hooks/options.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/edit_distance.hpp"
#include "base/error.hpp"
#include "base/joined.hpp"

namespace dsc {
namespace {

constexpr size_t kNear = 3;  // names that differ by fewer edits are suggested

std::string keys_of(std::span<const HookOption> list) {
  return list.empty() ? "none" : joined(list, ", ", &HookOption::key);
}

const HookOption* find(std::span<const HookOption> list, const std::string& key) {
  const auto found = std::ranges::find_if(list, [&](const HookOption& option) { return key == option.key; });
  return found == list.end() ? nullptr : &*found;
}

void check_keys(const HookSpec& spec, std::span<const HookOption> list) {
  for (size_t i = 0; i < spec.options.size(); ++i) {
    const std::string& key = spec.options[i].key;
    if (!find(list, key)) {
      std::vector<std::string> names;
      for (const HookOption& option : list) names.emplace_back(option.key);
      fail(DSC_ERR_INVALID_ARG, "hook %s has no option %s%s; expected one of: %s", spec.name.c_str(),
           key.c_str(), did_you_mean(key, names).c_str(), keys_of(list).c_str());
    }
    for (size_t k = 0; k < i; ++k)
      if (spec.options[k].key == key)
        fail(DSC_ERR_INVALID_ARG, "hook %s: option %s is given twice", spec.name.c_str(), key.c_str());
  }
}

double read_value(const HookSpec& spec, const HookOption& option) {
  const auto given = std::ranges::find(spec.options, option.key, &HookSpec::Option::key);
  if (given == spec.options.end() && !option.fallback)
    fail(DSC_ERR_INVALID_ARG, "hook %s: option %s is missing (%s)", spec.name.c_str(), option.key,
         option.meaning);
  const std::string text = given == spec.options.end() ? option.fallback : given->value;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (!is_number || !(value >= option.least && value <= option.most) ||
      (option.whole && value != std::floor(value)))
    fail(DSC_ERR_INVALID_ARG, "hook %s: option %s is %s, expected %s from %g to %g (%s)", spec.name.c_str(),
         option.key, text.c_str(), option.whole ? "an integer" : "a number", option.least, option.most,
         option.meaning);
  return value;
}

}  // namespace

HookOptions::HookOptions(const HookSpec& spec, std::span<const HookOption> list) : list_(list) {
  check_keys(spec, list);
  for (const HookOption& option : list) values_.push_back(read_value(spec, option));
}

double HookOptions::number(const char* key) const {
  for (size_t i = 0; i < list_.size(); ++i)
    if (std::strcmp(list_[i].key, key) == 0) return values_[i];
  fail(DSC_ERR_INTERNAL, "a hook reads option %s, which it does not have", key);
}

std::string did_you_mean(const std::string& word, std::span<const std::string> names) {
  std::string given = word;
  for (char& c : given) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const std::string* nearest = nullptr;
  size_t distance = kNear;
  for (const std::string& name : names) {
    const size_t letters = edit_distance(given, name);
    if (letters < distance) {
      distance = letters;
      nearest = &name;
    }
  }
  return nearest ? ", did you mean \"" + *nearest + "\"?" : "";
}

}  // namespace dsc
