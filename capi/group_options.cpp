#include "group_options.hpp"

#include "base/error.hpp"
#include "base/options.hpp"
#include "settings.hpp"

namespace dsc {
namespace {

dsc_comm_options_t default_group_options() {
  dsc_comm_options_t options{};
  options.struct_size = sizeof options;
  return options;
}

}  // namespace

void init_group_options(dsc_comm_options_t* options, size_t struct_size) {
  init_sized(options, struct_size, default_group_options(), "options");
}

GroupOptions read_group_options(const dsc_comm_options_t* given) {
  const auto options = read_sized(given, default_group_options(), "options");
  if (options.timeout_ms < 0)
    fail(DSC_ERR_INVALID_ARG,
         "options->timeout_ms is %d, expected 1 or more, or 0 for the timeout of the parent communicator",
         options.timeout_ms);
  GroupOptions read;
  read.name = options.name ? options.name : "";
  read.timeout_ms = options.timeout_ms;
  read.stream_priority = options.stream_priority;
  read_settings(options.settings, options.n_settings,
                {{"nccl.min_ctas", &read.min_ctas},
                 {"nccl.max_ctas", &read.max_ctas},
                 {"nccl.net_name", &read.net_name}});
  if (read.max_ctas > 0 && read.min_ctas > read.max_ctas)
    fail(DSC_ERR_INVALID_ARG, "setting nccl.min_ctas is %d, expected at most %d, the value of nccl.max_ctas",
         read.min_ctas, read.max_ctas);
  return read;
}

}  // namespace dsc
