#include "group_options.hpp"

#include "base/error.hpp"
#include "base/options.hpp"

namespace dsc {
namespace {

constexpr size_t kFirstGroupOptionsSize = 24;
static_assert(sizeof(dsc_group_options_t) == kFirstGroupOptionsSize,
              "no padding, and nothing but appended fields");

dsc_group_options_t default_group_options() {
  dsc_group_options_t options{};
  options.struct_size = sizeof options;
  return options;
}

}  // namespace

void init_group_options(dsc_group_options_t* options, size_t struct_size) {
  init_sized(options, struct_size, default_group_options(), kFirstGroupOptionsSize, "options");
}

GroupOptions read_group_options(const dsc_group_options_t* given) {
  const auto options = read_sized(given, default_group_options(), kFirstGroupOptionsSize, "options");
  if (options.timeout_ms < 0)
    fail(DSC_ERR_INVALID_ARG, "options->timeout_ms is %d, expected 1 or more, or 0 for the parent's",
         options.timeout_ms);
  if (options.reserved != 0)
    fail(DSC_ERR_INVALID_ARG, "options->reserved is %d, expected 0", options.reserved);
  return {options.name ? options.name : "", options.timeout_ms};
}

}  // namespace dsc
