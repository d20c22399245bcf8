// Information from the PMIx server that started this process. libpmix is loaded at run time, so libdsc also
// works without it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.hpp"
#include "base/environment.hpp"
#include "store/exchange.hpp"

namespace dsc {

// The numbers that a PMIx server knows about this process.
struct PmixJob {
  int32_t rank = 0;
  int32_t size = 1;
  int32_t local_rank = -1;  // here and below, -1 means that the server does not know it
  int32_t local_size = -1;
  int32_t hosts = -1;
  std::string version;  // version text of libpmix
};

// Returns whether this build supports PMIx.
bool has_pmix() noexcept;

// The libpmix that would be used. find_pmix() loads it, but does not contact the server. Throws NO_BACKEND.
struct PmixLocation {
  std::string path;
  std::string version;
};
PmixLocation find_pmix(const Environment& environment);

// Connects to the server at the first call. The connection remains open until the process ends. There are two
// reasons: PMIx cannot be initialized again after its last user has finalized it, and a program that uses MPI
// shares the connection. Throws NO_BACKEND with the searched paths if there is no usable libpmix, TIMEOUT,
// and SYSTEM with libpmix's text if the server refuses.
PmixJob ask_pmix(const Environment& environment, Deadline deadline);

// Returns an exchange of values between ranks through the server; see pmix_exchange.hpp. Throws what
// ask_pmix() throws.
std::shared_ptr<Exchange> pmix_exchange(const Environment& environment, uint32_t world, Deadline deadline);

using AskPmix = std::function<PmixJob()>;

}  // namespace dsc
