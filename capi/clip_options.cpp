#include "clip_options.hpp"

#include <limits>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/options.hpp"

dsc_clip_options_t dsc::default_clip_options() {
  dsc_clip_options_t options{};
  options.struct_size = sizeof options;
  options.max_norm = std::numeric_limits<double>::infinity();
  options.scale = 1;
  options.norm = DSC_NORM_TWO;
  return options;
}

dsc_clip_options_t dsc::read_clip_options(const dsc_clip_options_t* given) {
  const auto options = read_sized(given, default_clip_options(), "options");
  if (options.reserved != 0)
    fail(DSC_ERR_INVALID_ARG, "options->reserved is %d, expected 0", options.reserved);
  return options;
}

dsc_result_t dsc_clip_options_init(dsc_clip_options_t* options, size_t struct_size) {
  return dsc::guard_pure(
      __func__, [&] { dsc::init_sized(options, struct_size, dsc::default_clip_options(), "options"); });
}
