// The last message on a connection that is given up. It carries the cause, so that all hosts name the same
// culprit.
#pragma once

#include <cstdint>
#include <cstdio>
#include <iterator>

#include "base/error.hpp"

namespace dsc {

struct AbortMessage {
  int32_t code = DSC_OK;
  int32_t n_hosts = 0;
  // nonzero: `hosts` holds ranks that the caller of abort() has named, not indices of hosts
  int32_t of_group = 0;
  int32_t hosts[64] = {};
  char text[256] = {};

  static AbortMessage because_of(const Error& error) noexcept {
    const ErrorPlace& place = error.place();
    AbortMessage abort_message{
        .code = error.code(), .n_hosts = place.n_ranks, .of_group = place.revoked ? 1 : 0};
    for (size_t i = 0; i < std::size(abort_message.hosts); ++i) abort_message.hosts[i] = place.ranks[i];
    std::snprintf(abort_message.text, sizeof abort_message.text, "%.*s",
                  static_cast<int>(sizeof abort_message.text - 1), error.what());
    return abort_message;
  }

  // Converts it to an error of this host. A fatal code of the group stays as it is; an error of the other
  // host's own call becomes REVOKED here.
  Error as_error(const char* doing, const char* who) const noexcept {
    char words[Error::kTextBytes];
    std::snprintf(words, sizeof words, "%s: %s gave up: %.*s", doing, who, static_cast<int>(sizeof text - 1),
                  text);
    ErrorPlace place;
    for (int32_t i = 0; i < n_hosts && i < static_cast<int32_t>(std::size(hosts)); ++i)
      place.ranks[place.n_ranks++] = hosts[i];
    if (place.n_ranks > 0) place.rank = place.ranks[0];
    place.revoked = of_group != 0;
    const auto result = static_cast<dsc_result_t>(code);
    return Error(is_group_fatal(result) ? result : DSC_ERR_REVOKED, words, place);
  }
};

}  // namespace dsc
