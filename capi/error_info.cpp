#include "error_info.hpp"

#include <cstddef>
#include <cstdio>
#include <cstring>

#include "base/guard.hpp"
#include "base/utf8.hpp"

namespace dsc {
namespace {

void write(dsc_result_t code, const char* text, const ErrorPlace& place, dsc_error_info_t* info) {
  dsc_error_info_t filled{};
  static_assert(sizeof filled.ranks == sizeof place.ranks &&
                sizeof filled.operation == sizeof place.operation);
  filled.comm_id = place.group;
  filled.sequence = place.sequence;
  filled.elapsed_ns = place.elapsed_ns;
  filled.code = code;
  filled.revoked = place.revoked ? 1 : 0;
  filled.rank = place.rank;
  filled.n_ranks = place.n_ranks;
  std::memcpy(filled.ranks, place.ranks, sizeof filled.ranks);
  filled.system_error = place.system_error;
  filled.native_code = place.native_code;
  std::memcpy(filled.operation, place.operation, sizeof filled.operation);
  const auto bytes = static_cast<size_t>(std::snprintf(filled.text, sizeof filled.text, "%s", text));
  if (bytes >= sizeof filled.text) filled.text[utf8_whole(filled.text)] = 0;
  make_utf8(filled.text);  // the text may quote bytes of the caller
  filled.index = place.index;
  write_sized(info, filled, "info");
}

}  // namespace

void write_error_info(const Failure& failure, dsc_error_info_t* info) {
  write(failure.code, failure.text.c_str(), place_of(failure), info);
}

}  // namespace dsc

dsc_result_t dsc_last_error_info(dsc_error_info_t* info) {
  // A wrong argument becomes the last error in its turn.
  return dsc::guard_pure(__func__, [&] {
    const dsc::LastError last = dsc::last_error();
    dsc::write(last.code, last.text, *last.place, info);
  });
}
