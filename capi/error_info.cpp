#include "error_info.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/guard.hpp"
#include "base/utf8.hpp"

namespace dsc {

void write_error_info(const Failure& failure, dsc_error_info_t* info) {
  dsc_error_info_t filled{};
  static_assert(std::size(filled.ranks) == RankList::kMost && sizeof filled.text == sizeof failure.text &&
                sizeof filled.operation == sizeof failure.operation &&
                sizeof filled.group == sizeof failure.group_name);
  filled.comm_id = failure.group;
  filled.sequence = failure.sequence;
  filled.index = failure.index;
  filled.elapsed_ns = failure.elapsed_ns;
  filled.code = failure.code;
  filled.revoked = failure.revoked ? 1 : 0;
  filled.system_error = failure.system_error;
  filled.native_code = failure.native_code;
  filled.rank = failure.rank();
  filled.n_ranks = failure.ranks.size();
  std::ranges::copy(failure.ranks, filled.ranks);
  std::memcpy(filled.operation, failure.operation.c_str(), sizeof filled.operation);
  std::memcpy(filled.text, failure.text.c_str(), sizeof filled.text);
  std::memcpy(filled.group, failure.group_name.c_str(), sizeof filled.group);
  make_utf8(filled.text);  // the text may quote arguments that are not valid UTF-8
  write_sized(info, filled, "info");
}

}  // namespace dsc

dsc_result_t dsc_last_error_info(dsc_error_info_t* info) {
  // An error in this call, such as a wrong `info`, becomes the thread's last error.
  return dsc::guard_pure(__func__, [&] { dsc::write_error_info(*dsc::last_error().failure, info); });
}
