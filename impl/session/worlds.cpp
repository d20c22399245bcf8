#include "session/worlds.hpp"

#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/exclusive_use.hpp"
#include "base/guard.hpp"
#include "base/handle_table.hpp"
#include "base/log.hpp"
#include "base/log_rank.hpp"
#include "base/mutex.hpp"
#include "base/process_guard.hpp"

namespace dsc {
namespace {

struct KnownWorld {
  uint64_t handle = 0;
  InitOptions options;
};

struct WorldRegistry {
  Mutex starting;  // held during a whole start-up, so that a second call waits for it
  Mutex mutex;
  KnownWorld world DSC_GUARDED_BY(mutex);
};

// The registry is never destroyed, because calls may arrive until the process ends.
WorldRegistry& registry() {
  static WorldRegistry* const instance = new WorldRegistry;
  return *instance;
}

thread_local uint64_t thread_world = 0;

bool is_open(uint64_t handle) noexcept {
  return handle != 0 &&
         capture([&] { Pinned<Comm> pinned(HandleKind::kComm, handle); }, [](dsc_result_t, const char*) {});
}

KnownWorld process_world() {
  MutexLock lock(registry().mutex);
  return is_open(registry().world.handle) ? registry().world : KnownWorld{};
}

uint64_t start(const InitOptions& options, uint32_t library_version) {
  mark_process();
  uint64_t handle = 0;
  capture([&] { handle = handles::open(HandleKind::kComm, start_world(options, library_version)); },
          [&](const Error& error) {
            set_log_rank(-1, options.rank_per_thread != 0);  // removes the rank that start-up has set
            throw error;
          });
  return handle;
}

uint64_t start_for_thread(const InitOptions& options, uint32_t library_version) {
  if (is_open(thread_world))
    fail(DSC_ERR_STATE, "this thread is already a rank of a world; finalize that world first");
  return thread_world = start(options, library_version);
}

// Returns the existing world, and logs that it is used. Only rank 0 logs, because all ranks make the same
// call.
uint64_t reuse(uint64_t handle) {
  if (log_rank() <= 0)
    log(DSC_LOG_LEVEL_INFO, "distributed backend is already initialized: the existing world is used");
  return handle;
}

void check_equal(const InitOptions& known, const InitOptions* options) {
  if (options)
    if (const auto option = first_difference(known, *options))
      fail(DSC_ERR_STATE, "the world exists already, with another %s; finalize it first", option->c_str());
}

// Returns the existing world, or fails. Ignores all other options and the environment.
uint64_t existing_world() {
  if (is_open(thread_world)) return reuse(thread_world);
  MutexLock after_another(registry().starting);
  const uint64_t handle = process_world().handle;
  if (handle == 0) fail(DSC_ERR_STATE, "no world exists, and options->require_existing is set");
  return reuse(handle);
}

}  // namespace

uint64_t init_world(const InitOptions* options, uint32_t library_version) {
  const InitOptions wanted = options ? *options : InitOptions{};
  if (wanted.require_existing == 1) return existing_world();
  check_options(wanted);
  if (wanted.rank_per_thread) return start_for_thread(wanted, library_version);
  MutexLock one_at_a_time(registry().starting);
  if (const KnownWorld known = process_world(); known.handle != 0) {
    check_equal(known.options, options);
    return reuse(known.handle);
  }
  KnownWorld made{0, wanted};  // made before the start, because copying the options may throw
  const uint64_t handle = made.handle = start(wanted, library_version);
  MutexLock lock(registry().mutex);
  registry().world = std::move(made);
  return handle;
}

uint64_t current_world() {
  if (is_open(thread_world)) return thread_world;
  MutexLock lock(registry().mutex);
  const uint64_t handle = registry().world.handle;
  return is_open(handle) ? handle : 0;
}

namespace {

bool can_finalize(const Comm& comm) { return !comm.failure().revoked && !comm.finalized(); }

// If the world has failed, returns the communicator that the latest shrink() created. The ranks of that
// communicator finalize together.
std::shared_ptr<Comm> shrunk_from(const Comm& world) {
  std::shared_ptr<Comm> shrunk;
  for (const Comm* comm = &world; comm && comm->failure().revoked; comm = shrunk.get())
    shrunk = comm->successor();
  return shrunk;
}

}  // namespace

// Only a working communicator is checked for exclusive use. A failed one may still be in use by another
// thread, which will soon see the failure.
void finalize_world() {
  const uint64_t handle = current_world();
  if (handle == 0)
    fail(DSC_ERR_STATE, "there is no world: it was not created yet, or it is already finalized");
  Pinned<Comm> world(HandleKind::kComm, handle);
  if (world->coalesced && !world->failure().revoked)
    fail(DSC_ERR_STATE, "a batch is open on the world: expected dsc_batch_end() first");
  const std::shared_ptr<Comm> shrunk = shrunk_from(*world);
  Comm& last = shrunk ? *shrunk : *world;
  std::optional<ExclusiveUse> only_call;
  if (can_finalize(last)) only_call.emplace(last.in_call);
  struct Release {
    Pinned<Comm>& world;
    uint64_t handle;
    ~Release() {
      world->leave();
      world->end_world();
      capture([&] { world.close(); }, [](dsc_result_t, const char*) {});
      set_log_rank(-1, handle == thread_world);
    }
  } release{world, handle};
  if (can_finalize(last)) last.finalize();
}

}  // namespace dsc
