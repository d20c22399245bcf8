// What a PMIx server tells the process that it started. libpmix is loaded when it is asked for, never linked.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.hpp"
#include "base/environment.hpp"
#include "store/exchange.hpp"

namespace dsc {

struct PmixJob {
  int32_t rank = 0;
  int32_t size = 1;
  int32_t local_rank = -1;  // -1, here and below: the server does not say
  int32_t local_size = -1;
  int32_t hosts = -1;
  std::string version;  // of libpmix, in its own words
};

// Whether this build knows PMIx.
bool has_pmix() noexcept;

// The libpmix that would be used: libpmix is loaded, but no server is asked. Throws NO_BACKEND.
struct PmixPlace {
  std::string path;
  std::string version;
};
PmixPlace find_pmix(const Environment& environment);

// Connects to the server, once for the process and until it ends: a program that uses MPI as well shares the
// connection, and PMIx does not come back after the last user has left. Throws NO_BACKEND (no libpmix that
// can be used; says where it looked), TIMEOUT, SYSTEM (the server refuses, in libpmix's words).
PmixJob ask_pmix(const Environment& environment, Deadline deadline);

// Values between ranks through the server: pmix_exchange.hpp. Throws as ask_pmix().
std::shared_ptr<Exchange> pmix_exchange(const Environment& environment, uint32_t world, Deadline deadline);

using AskPmix = std::function<PmixJob()>;

}  // namespace dsc
