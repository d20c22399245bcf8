// Replaces pmix.cpp in a build without the headers of PMIx.
#include "base/error.hpp"
#include "bootstrap/pmix.hpp"

namespace dsc {

bool has_pmix() noexcept { return false; }

namespace {

[[noreturn]] void fail_unknown() {
  fail(DSC_ERR_NO_BACKEND, "this build of libdsc does not support PMIx: its headers were missing");
}

}  // namespace

PmixLocation find_pmix(const Environment&) { fail_unknown(); }

PmixJob ask_pmix(const Environment&, Deadline) { fail_unknown(); }

std::shared_ptr<Exchange> pmix_exchange(const Environment&, uint32_t, Deadline) { fail_unknown(); }

}  // namespace dsc
