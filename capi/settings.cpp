#include "settings.hpp"

#include <charconv>
#include <cstring>

#include "base/error.hpp"
#include "base/joined.hpp"
#include "checks.hpp"

namespace dsc {
namespace {

void set(int32_t* number, const char* name, const char* text) {
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, *number);
  if (error != std::errc{} || stop != end || *number < 0)
    fail(DSC_ERR_INVALID_ARG, "setting %s is \"%.32s\", expected a whole number of 0 or more", name, text);
}

void set(std::string* target, const char*, const char* text) { *target = text; }

void set(std::optional<std::string>* target, const char*, const char* text) { *target = text; }

const KnownSetting& find(const char* name, std::initializer_list<KnownSetting> known) {
  for (const KnownSetting& setting : known)
    if (std::strcmp(setting.name, name) == 0) return setting;
  fail(DSC_ERR_INVALID_ARG, "unknown setting \"%.32s\", expected one of %s", name,
       joined(known, ", ", &KnownSetting::name).c_str());
}

}  // namespace

void read_settings(const dsc_setting_t* settings, size_t n_settings,
                   std::initializer_list<KnownSetting> known) {
  if (n_settings > 0) require(settings, "options->settings");
  for (size_t i = 0; i < n_settings; ++i) {
    const char *name = settings[i].name, *text = settings[i].value;
    if (!name) fail(DSC_ERR_INVALID_ARG, "options->settings[%zu].name is NULL", i);
    if (!text) fail(DSC_ERR_INVALID_ARG, "options->settings[%zu].value is NULL", i);
    const KnownSetting& setting = find(name, known);
    std::visit([&](auto* target) { set(target, name, text); }, setting.value);
  }
}

}  // namespace dsc
