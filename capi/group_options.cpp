#include "group_options.hpp"

#include "base/error.hpp"
#include "base/options.hpp"

namespace dsc {
namespace {

constexpr size_t kFirstGroupOptionsSize = 24;
static_assert(sizeof(dsc_group_options_t) == kFirstGroupOptionsSize + 24,
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
  if (options.nccl_min_ctas < 0 || options.nccl_max_ctas < 0 ||
      (options.nccl_max_ctas > 0 && options.nccl_min_ctas > options.nccl_max_ctas))
    fail(
        DSC_ERR_INVALID_ARG,
        "options->nccl_min_ctas is %d and nccl_max_ctas %d, expected 0, or 1 or more and the first not above "
        "the second",
        options.nccl_min_ctas, options.nccl_max_ctas);
  if (options.reserved2 != 0)
    fail(DSC_ERR_INVALID_ARG, "options->reserved2 is %d, expected 0", options.reserved2);
  GroupOptions read;
  read.name = options.name ? options.name : "";
  read.timeout_ms = options.timeout_ms;
  read.min_ctas = options.nccl_min_ctas;
  read.max_ctas = options.nccl_max_ctas;
  read.stream_priority = options.stream_priority;
  read.net_name = options.nccl_net_name ? options.nccl_net_name : "";
  return read;
}

}  // namespace dsc
