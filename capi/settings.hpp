// Settings of backends, which are pairs of texts so that no vendor's name stands in a struct of the ABI.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "dsc/types.h"

namespace dsc {

// A setting that a call knows, and where its value goes: numbers are 0 or more.
struct KnownSetting {
  const char* name;
  std::variant<int32_t*, std::string*, std::optional<std::string>*> value;
};

// Throws INVALID_ARG for a name that is not known, with those that are, and for a value that is no number.
void read_settings(const dsc_setting_t* settings, size_t n_settings,
                   std::initializer_list<KnownSetting> known);

}  // namespace dsc
