// Start-up: creates a world from a caller's options.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "comm/comm.hpp"
#include "dsc/types.h"
#include "store/exchange.hpp"

namespace dsc {

// The options of the caller. The values -1 and 0 mean "not given", as in dsc_init_options_t.
struct InitOptions {
  std::optional<std::string> init_method;
  std::optional<std::string> job_id;
  std::optional<std::string> token;
  std::shared_ptr<Exchange> store;  // through which ranks of several hosts find each other; may be null
  uint64_t store_handle = 0;        // the caller's handle of the store
  // Paths of device libraries, by the name of the setting.
  std::map<std::string, std::string> device_settings;
  int32_t backend = DSC_BACKEND_AUTO;
  int32_t rank = -1;
  int32_t world_size = -1;
  int32_t local_rank = -1;
  int32_t device = -1;
  int32_t port = 0;
  uint32_t sources = 0;
  int32_t require_existing = 0;
  int32_t rank_per_thread = 0;
  int32_t init_timeout_ms = 300'000;
  int32_t timeout_ms = 300'000;
  int32_t stall_timeout_ms = 30'000;
  int32_t progress_thread = 1;
};

// Throws INVALID_ARG for a value out of range, and UNSUPPORTED for an option that this version does not
// support.
void check_options(const InitOptions& options);

// Returns the name of the first option in `wanted` that is not at its default and differs from that of the
// world; nullopt if there is none. Ignores require_existing.
std::optional<std::string> first_difference(const InitOptions& world, const InitOptions& wanted);

// Returns what start_world() would find out before it contacts other ranks, as the JSON text of
// dsc_launch_json().
std::string explain_start(const InitOptions& options);

// Blocks until all ranks of the job have joined, and returns the world's communicator.
std::shared_ptr<Comm> start_world(const InitOptions& options, uint32_t library_version);

}  // namespace dsc
