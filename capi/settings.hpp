// Settings of backends. They are pairs of texts, so that the structs of the ABI contain no vendor's name.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "dsc/types.h"

namespace dsc {

// A setting that a call knows, and the variable that gets its value. Numbers must be 0 or more.
struct KnownSetting {
  const char* name;
  std::variant<int32_t*, std::string*, std::optional<std::string>*> value;
};

// Throws INVALID_ARG for an unknown name and lists the known ones. Throws INVALID_ARG for a value that must
// be a number and is not.
void read_settings(const dsc_setting_t* settings, size_t n_settings,
                   std::initializer_list<KnownSetting> known);

}  // namespace dsc
