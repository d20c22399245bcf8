#include "engine_nccl/bind.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "base/mutex.hpp"
#include "comm/gather.hpp"
#include "engine_nccl/nccl_engine.hpp"

namespace dsc {
namespace {

constexpr const char *kCudaLibrary = "cuda.library", *kNcclLibrary = "nccl.library";
constexpr size_t kReadyEvents = 32;
constexpr int kSharesCards = 23000;  // NCCL 2.30 and later can let several ranks share a card
constexpr uint64_t kBindTag = 0x62696e64;

enum class Bound : int32_t { kNotWanted, kYes, kFailed };

struct Binding {
  Bound bound = Bound::kNotWanted;
  int32_t code = DSC_OK;
  int32_t asked = 0;  // 1: the program named the device
  int32_t number = -1;
  int32_t host = -1;  // the first rank on this host
  int32_t nccl = 0;   // version of NCCL
  CudaUuid card{};    // processes may number devices differently
  // Hash of NCCL_HOSTID; 0: not set. Ranks with different values may share a card, because NCCL treats them
  // as ranks on different hosts.
  uint64_t nccl_host = 0;
  int32_t shares_cards = 0;  // 1: NCCL accepts several ranks per card
  char text[440] = {};
};

// Ranks that are threads of one process load libraries one after another, because loading changes the
// process's list of loaded libraries.
Mutex& loading() {
  static Mutex* const instance = new Mutex;
  return *instance;
}

struct Driver {
  Mutex mutex;
  std::string path DSC_GUARDED_BY(mutex);  // the first driver that worked; never changes afterwards
};

// Throws if the process has used another copy of the driver, because objects of one copy are not valid in
// another copy.
CudaLibrary load_driver(const DeviceRequest& request, const Loader& loader, const Environment& environment) {
  static Driver* const used = new Driver;
  CudaLibrary cuda = load_cuda(request.setting(kCudaLibrary), environment, loader);
  const MutexLock lock(used->mutex);
  if (used->path.empty()) used->path = cuda.path;
  if (used->path != cuda.path)
    fail(DSC_ERR_NO_BACKEND,
         "this process already uses CUDA's driver from %.180s, but %s %.180s; expected the same driver for "
         "all "
         "ranks of a process",
         used->path.c_str(),
         request.setting(kCudaLibrary).empty() ? "this rank found" : "setting cuda.library names",
         cuda.path.c_str());
  return cuda;
}

// Returns whether a device is current in this thread. Does not load or initialize CUDA in a program that does
// not use it.
bool works_on_device(const DeviceRequest& request, const Loader& loader, const Environment& environment) {
  if (loader.loaded("cuInit").empty()) return false;
  return Device::current(load_driver(request, loader, environment)) >= 0;
}

struct Choice {
  int number;
  const char* why;
};

Choice choose(const CudaLibrary& cuda, int wanted, int local_rank) {
  if (wanted >= 0) return {wanted, "as requested"};
  if (const int current = Device::current(cuda); current >= 0)
    return {current, "the device of the current CUDA context"};
  return {local_rank % cuda.devices, "chosen by the local rank"};
}

DeviceWorld bind(const DeviceRequest& request, int local_rank, const Loader& loader,
                 const Environment& environment) {
  NcclEnding::expect_usable();
  const auto cuda = std::make_shared<const CudaLibrary>(load_driver(request, loader, environment));
  const Choice choice = choose(*cuda, request.number, local_rank);
  DeviceWorld world;
  world.gpu.device = world.nccl.device = Device::bind(cuda, choice.number);
  world.nccl.library =
      std::make_shared<const NcclLibrary>(load_nccl(request.setting(kNcclLibrary), environment, loader));
  world.gpu.events = std::make_shared<EventPool>(world.nccl.device, kReadyEvents);
  world.gpu.kernels = std::make_shared<KernelStore>(world.nccl.device);
  world.barrier_word = std::make_shared<BarrierWord>(world.nccl.device);
  log(DSC_LOG_LEVEL_INFO, "bound to device %d (%s), %s; NCCL %s of %s", choice.number,
      world.nccl.device->name().c_str(), choice.why, world.nccl.library->version.c_str(),
      world.nccl.library->path.c_str());
  if (!world.nccl.library->warning.empty())
    log(DSC_LOG_LEVEL_WARN, "%s", world.nccl.library->warning.c_str());
  if (environment("NCCL_COMM_BLOCKING") == "1")
    log(DSC_LOG_LEVEL_WARN,
        "with NCCL_COMM_BLOCKING=1, calls of NCCL may block without limit, and timeouts have no effect");
  return world;
}

bool share_a_card(const Binding& a, const Binding& b) {
  return a.host == b.host && std::memcmp(&a.card, &b.card, sizeof a.card) == 0;
}

// NCCL needs one card for each rank of a host, and the same version on all ranks. This check fails early and
// with the same error on all ranks; NCCL itself would fail later and differently on each rank.
void check_devices(const std::vector<Binding>& all) {
  for (size_t a = 0; a < all.size(); ++a) {
    if (all[a].nccl != all[0].nccl)
      fail(DSC_ERR_CONFIG, "rank 0 has NCCL %s, and rank %zu has %s: expected one version",
           nccl_version(all[0].nccl).c_str(), a, nccl_version(all[a].nccl).c_str());
    for (size_t b = a + 1; b < all.size(); ++b)
      if (share_a_card(all[a], all[b]) && all[a].nccl_host == all[b].nccl_host && !all[a].shares_cards)
        fail(DSC_ERR_CONFIG,
             "ranks %zu and %zu are bound to the same GPU (their devices %d and %d), expected a separate GPU "
             "for each rank, or different values of NCCL_HOSTID",
             a, b, all[a].number, all[b].number);
  }
}

std::string first_text(const std::vector<Binding>& all, Bound bound) {
  const auto found = std::ranges::find(all, bound, &Binding::bound);
  const std::string who = "rank " + std::to_string(found - all.begin());
  return bound == Bound::kFailed ? who + ": " + found->text : who + " requests no device";
}

// If no rank asked for a device, a failure here is not an error. It occurs on all ranks, so all of them
// continue without a device.
std::shared_ptr<DeviceEngine> make_bound(const DeviceWorld& world, const std::shared_ptr<GroupEngine>& host,
                                         const std::vector<Binding>& all, bool asked, Deadline deadline) {
  std::shared_ptr<DeviceEngine> bound;
  capture(
      [&] {
        check_devices(all);
        bound = NcclEngine::create(world, host, deadline);
      },
      [&](const Error& error) {
        if (asked || host->revoked()) throw Error(error);
        log(DSC_LOG_LEVEL_WARN, "only the host engine is used, not NCCL: %s", error.what());
        host->restart_sequence();
      });
  return bound;
}

}  // namespace

std::shared_ptr<DeviceEngine> bind_nccl(const std::shared_ptr<GroupEngine>& host,
                                        const DeviceRequest& request, const Environment& environment,
                                        Deadline deadline) {
  const Loader loader = process_loader();
  DeviceWorld world;
  Binding mine;
  mine.asked = request.required || request.number >= 0;
  mine.host = host->state.local().ranks.front();
  if (const auto name = environment("NCCL_HOSTID")) mine.nccl_host = fnv1a(*name) | 1;
  capture(
      [&] {
        const MutexLock lock(loading());
        if (!mine.asked && !works_on_device(request, loader, environment)) return;
        world = bind(request, host->state.info()->local_rank, loader, environment);
        mine.bound = Bound::kYes;
        mine.number = world.nccl.device->number();
        mine.card = world.nccl.device->uuid();
        mine.nccl = world.nccl.library->number;
        mine.shares_cards = mine.nccl >= kSharesCards && environment("NCCL_MULTI_RANK_GPU_ENABLE") == "1";
      },
      [&](dsc_result_t code, const char* text) {
        mine.bound = Bound::kFailed;
        mine.code = code;
        std::snprintf(mine.text, sizeof mine.text, "%.430s", text);
      });
  const std::vector<Binding> all = gather_all(*host, OpKind::kBind, kBindTag, mine);
  const auto is = [](Bound bound) { return [bound](const Binding& of) { return of.bound == bound; }; };
  const bool asked = std::ranges::any_of(all, [](const Binding& of) { return of.asked != 0; });
  if (std::ranges::all_of(all, is(Bound::kYes))) return make_bound(world, host, all, asked, deadline);
  host->restart_sequence();
  if (std::ranges::all_of(all, is(Bound::kNotWanted))) {
    log(DSC_LOG_LEVEL_DEBUG,
        "no rank is bound to a device, because no rank requests a device or has a current CUDA context");
    return nullptr;
  }
  const bool failed = std::ranges::any_of(all, is(Bound::kFailed));
  const std::string text = first_text(all, failed ? Bound::kFailed : Bound::kNotWanted);
  if (failed && asked)
    fail(std::ranges::find(all, Bound::kFailed, &Binding::bound)->code, "%s", text.c_str());
  if (asked)
    fail(DSC_ERR_CONFIG, "%s, but other ranks do; expected a device for all ranks, or for none",
         text.c_str());
  log(DSC_LOG_LEVEL_WARN, "only the host engine is used, not NCCL: %s", text.c_str());
  return nullptr;
}

}  // namespace dsc
