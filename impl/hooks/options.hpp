// The options of a hook: values with their defaults, read from a spec and checked.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "hooks/spec.hpp"

namespace dsc {

struct HookOption {
  const char* key;
  const char* fallback;  // as in a spec; null: required
  double least;
  double most;
  bool whole;  // integers only
  const char* meaning;
};

// Every reader function takes a key of the list.
class HookOptions {
 public:
  // Throws INVALID_ARG for an option that is not in the list, is given twice or is missing, or has a value
  // out of range.
  HookOptions(const HookSpec& spec, std::span<const HookOption> list);

  double number(const char* key) const;
  int64_t integer(const char* key) const { return static_cast<int64_t>(number(key)); }
  bool flag(const char* key) const { return number(key) != 0; }

 private:
  std::span<const HookOption> list_;
  std::vector<double> values_;
};

// Returns ", did you mean "x"?" for the most similar of some names, or nothing if none is similar.
std::string did_you_mean(const std::string& given, std::span<const std::string> names);

}  // namespace dsc
