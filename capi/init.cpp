#include "dsc/init.h"

#include "base/guard.hpp"
#include "base/options.hpp"
#include "checks.hpp"
#include "dsc/version.h"
#include "give.hpp"
#include "session/start_up.hpp"
#include "session/worlds.hpp"
#include "settings.hpp"
#include "store_handle.hpp"

namespace {

constexpr uint32_t kLibraryVersion = DSC_VERSION_MAJOR << 16 | DSC_VERSION_MINOR << 8 | DSC_VERSION_PATCH;

dsc_init_options_t default_init_options() {
  const dsc::InitOptions defaults;
  dsc_init_options_t options{};
  options.struct_size = sizeof options;
  options.backend = defaults.backend;
  options.rank = defaults.rank;
  options.world_size = defaults.world_size;
  options.local_rank = defaults.local_rank;
  options.device = defaults.device;
  options.init_timeout_ms = defaults.init_timeout_ms;
  options.timeout_ms = defaults.timeout_ms;
  options.stall_timeout_ms = defaults.stall_timeout_ms;
  options.progress_thread = defaults.progress_thread;
  return options;
}

dsc::InitOptions convert(const dsc_init_options_t& given) {
  dsc::InitOptions options;
  if (given.init_method) options.init_method = given.init_method;
  if (given.job_id) options.job_id = given.job_id;
  options.backend = given.backend;
  options.rank = given.rank;
  options.world_size = given.world_size;
  options.local_rank = given.local_rank;
  options.device = given.device;
  options.port = given.port;
  options.sources = given.sources;
  options.require_existing = given.require_existing;
  options.rank_per_thread = given.rank_per_thread;
  options.init_timeout_ms = given.init_timeout_ms;
  options.timeout_ms = given.timeout_ms;
  options.stall_timeout_ms = given.stall_timeout_ms;
  options.progress_thread = given.progress_thread;
  if (given.token) options.token = given.token;
  if (given.store) options.store = dsc::store_of(given.store);
  options.store_handle = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(given.store));
  std::optional<std::string> nccl, cuda;
  dsc::read_settings(given.settings, given.n_settings, {{"nccl.library", &nccl}, {"cuda.library", &cuda}});
  if (nccl) options.device_settings["nccl.library"] = *std::move(nccl);
  if (cuda) options.device_settings["cuda.library"] = *std::move(cuda);
  return options;
}

dsc_comm_t* as_handle(uint64_t id) { return reinterpret_cast<dsc_comm_t*>(static_cast<uintptr_t>(id)); }

}  // namespace

dsc_result_t dsc_init_options_init(dsc_init_options_t* options, size_t struct_size) {
  return dsc::guard_pure(__func__,
                         [&] { dsc::init_sized(options, struct_size, default_init_options(), "options"); });
}

dsc_result_t dsc_init_distributed(const dsc_init_options_t* options, dsc_comm_t** world) {
  return dsc::guard(__func__, [&] {
    dsc::require(world, "world") = nullptr;
    if (!options) {
      *world = as_handle(dsc::init_world(nullptr, kLibraryVersion));
      return;
    }
    const dsc::InitOptions wanted = convert(dsc::read_sized(options, default_init_options(), "options"));
    *world = as_handle(dsc::init_world(&wanted, kLibraryVersion));
  });
}

dsc_result_t dsc_launch_json(const dsc_init_options_t* options, char* text, size_t capacity, size_t* needed) {
  return dsc::guard(__func__, [&] {
    const dsc::InitOptions wanted =
        options ? convert(dsc::read_sized(options, default_init_options(), "options")) : dsc::InitOptions{};
    return dsc::give_text(dsc::explain_start(wanted), text, capacity, needed);
  });
}

dsc_result_t dsc_world(dsc_comm_t** world) {
  return dsc::guard(__func__, [&] {
    dsc::require(world, "world") = nullptr;
    const uint64_t current = dsc::current_world();
    if (current == 0) dsc::fail(DSC_ERR_STATE, "there is no world; call dsc_init_distributed() first");
    *world = as_handle(current);
  });
}

dsc_result_t dsc_is_initialized(int32_t* initialized) {
  return dsc::guard(__func__,
                    [&] { dsc::require(initialized, "initialized") = dsc::current_world() != 0 ? 1 : 0; });
}

dsc_result_t dsc_finalize(void) {
  return dsc::guard(__func__, [] { dsc::finalize_world(); });
}
