// The options of a hook. They are read from a spec and checked; missing ones get their defaults.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "hooks/spec.hpp"

namespace dsc {

struct HookOption {
  const char* key;
  const char* fallback;  // the default value as text; null if the option is required
  double least;
  double most;
  bool whole;  // true if the value must be an integer
  const char* meaning;
};

// The values of all options. Each function below returns the value of one option, whose key must be in the
// list.
class HookOptions {
 public:
  // Throws INVALID_ARG if an option is not in the list, is given twice, is missing, or is out of range.
  HookOptions(const HookSpec& spec, std::span<const HookOption> list);

  double number(const char* key) const;
  int64_t integer(const char* key) const { return static_cast<int64_t>(number(key)); }
  bool flag(const char* key) const { return number(key) != 0; }

 private:
  std::span<const HookOption> list_;
  std::vector<double> values_;
};

// Returns a text such as ", did you mean "x"?" with the most similar name, or an empty text if no name is
// similar.
std::string did_you_mean(const std::string& given, std::span<const std::string> names);

}  // namespace dsc
