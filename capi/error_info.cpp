#include "error_info.hpp"

#include <algorithm>
#include <cstdio>
#include <iterator>

namespace dsc {
namespace {

constexpr size_t kFirstSize = 856;
static_assert(sizeof(dsc_error_info_t) == kFirstSize, "no padding, and nothing but appended fields");

}  // namespace

void write_error_info(const Failure& failure, dsc_error_info_t* info) {
  dsc_error_info_t filled{};
  filled.group = failure.group;
  filled.sequence = failure.sequence;
  filled.elapsed_ns = failure.elapsed_ns;
  filled.code = failure.code;
  filled.revoked = failure.revoked ? 1 : 0;
  filled.rank = failure.rank;
  const size_t ranks = std::min(failure.ranks.size(), std::size(filled.ranks));
  filled.n_ranks = static_cast<int32_t>(ranks);
  std::copy_n(failure.ranks.begin(), ranks, filled.ranks);
  std::snprintf(filled.operation, sizeof filled.operation, "%s", failure.operation.c_str());
  std::snprintf(filled.text, sizeof filled.text, "%s", failure.text.c_str());
  write_sized(info, filled, kFirstSize, "info");
}

}  // namespace dsc
