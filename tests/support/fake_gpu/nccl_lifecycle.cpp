// Creation and end of communicators.
#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "nccl_api.hpp"
#include "nccl_comm.hpp"

namespace fake_gpu {
namespace {

constexpr const char* kIdMark = "fake NCCL ";
constexpr int kMostRanks = 256;

uint64_t host_hash() {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  const char* const own = std::getenv("NCCL_HOSTID");
  return hash_of(own ? std::string("id ") + own : std::string("host ") + host);
}

Arrival arrival_of(const Comm& comm, int color, int key) {
  return {.world_rank = comm.world_rank,
          .card = cuda().card(comm.device),
          .color = color,
          .key = key,
          .host = host_hash()};
}

int blocking_of(const NcclConfig* config) {
  int blocking = dsc::kNcclUnset;
  if (config && config->size >= offsetof(NcclConfig, blocking) + sizeof blocking) blocking = config->blocking;
  return blocking;
}

bool good_config(const NcclConfig* config) {
  if (!config) return true;
  const int blocking = blocking_of(config);
  return config->magic == NcclConfig{}.magic && config->size >= offsetof(NcclConfig, net_name) &&
         (blocking == dsc::kNcclUnset || blocking == 0 || blocking == 1);
}

// Fails on all ranks with NCCL's error "Duplicate GPU detected" if two ranks use the same card.
NcclResult check_devices(Comm& comm) {
  for (int a = 0; a < comm.ranks; ++a)
    for (int b = 0; b < a; ++b) {
      const Arrival &one = comm.region->seat(a).arrival, &other = comm.region->seat(b).arrival;
      if (one.card != other.card || one.host != other.host) continue;
      return failed(comm, NcclResult::invalid_usage,
                    "fake NCCL: Duplicate GPU detected : rank " + std::to_string(a) + " and rank " +
                        std::to_string(b) + " both on CUDA device " + std::to_string(one.card));
    }
  return NcclResult::success;
}

// Connects all ranks of a communicator. Aborting `maker` ends a connect that is not complete.
NcclResult connect(Comm& comm, const Comm& maker) {
  auto region =
      meet(comm.name, comm.ranks, comm.rank, true, arrival_of(comm, 0, 0), [&] { return ended(maker); });
  if (!region) return NcclResult::internal_error;
  const std::lock_guard guard(comm.lock);
  comm.region = std::move(region);
  return NcclResult::success;
}

NcclResult init(NcclComm** out, int ranks, const NcclUniqueId& id, int rank, const NcclConfig* config,
                const char* name) {
  if (!out || ranks < 1 || ranks > kMostRanks || rank < 0 || rank >= ranks || !good_config(config) ||
      std::strncmp(id.bytes, kIdMark, std::strlen(kIdMark)) != 0)
    return misused(NcclResult::invalid_argument, "%s with a bad rank, size, id or config", name);
  if (cuda().usable() != kOk) return NcclResult::unhandled_cuda_error;
  if (cuda().current_device() < 0)
    return misused(NcclResult::invalid_usage, "%s without a current device", name);
  const auto comm = std::make_shared<Comm>();
  comm->ranks = ranks;
  comm->rank = comm->world_rank = rank;
  comm->device = cuda().current_device();
  comm->blocking = blocking_of(config) != 0;
  comm->name = derived_name({id.bytes, strnlen(id.bytes, sizeof id.bytes)});
  *out = add_comm(comm);
  const NcclResult result = run_job(comm, [comm] {
    NcclResult failure = fault_before(*comm, "init");
    if (failure == NcclResult::success) failure = connect(*comm, *comm);
    return failure == NcclResult::success ? check_devices(*comm) : failure;
  });
  if (result == NcclResult::success || result == NcclResult::in_progress) return result;
  forget_comm(*out);
  *out = nullptr;
  return result;
}

// Returns whether an earlier failure has broken the communicator. A shrink with the abort flag ignores this.
bool is_broken(NcclResult state) {
  return state == NcclResult::remote_error || state == NcclResult::system_error ||
         state == NcclResult::internal_error;
}

bool has_outstanding(const Comm& comm) { return !comm.revoked && !cuda().passed(*comm.order); }

CommPtr child_of(const CommPtr& parent, const NcclConfig* config) {
  const auto child = std::make_shared<Comm>();
  child->world_rank = parent->world_rank;
  child->device = parent->device;
  child->blocking = blocking_of(config) == dsc::kNcclUnset ? parent->blocking : blocking_of(config) != 0;
  return child;
}

// The caller's variable stays null until the communicator is ready, as with the real NCCL.
NcclResult deliver(const CommPtr& parent, const CommPtr& child, NcclComm** out) {
  const NcclResult result = connect(*child, *parent);
  if (result != NcclResult::success) return result;
  __atomic_store_n(out, add_comm(child), __ATOMIC_RELEASE);
  return NcclResult::success;
}

NcclResult split(const CommPtr& parent, const CommPtr& child, const std::string& name, int color, int key,
                 NcclComm** out) {
  if (const NcclResult failure = fault_before(*parent, "split"); failure != NcclResult::success)
    return failure;
  const auto all = meet(derived_name(name), parent->ranks, parent->rank, false,
                        arrival_of(*parent, color, key), [&] { return ended(*parent); });
  if (!all) return NcclResult::internal_error;
  if (color == dsc::kNcclNoColor) return NcclResult::success;
  for (int rank = 0; rank < parent->ranks; ++rank) {
    const Arrival& other = all->seat(rank).arrival;
    if (other.color != color) continue;
    ++child->ranks;
    child->rank += other.key < key || (other.key == key && rank < parent->rank);
  }
  child->name = derived_name(name + " color " + std::to_string(color));
  return deliver(parent, child, out);
}

void stop_operations(Comm& comm) {
  comm.revoked = true;
  wake(comm);
  hang(comm, [&] { return comm.running == 0 || ended(comm); });
  comm.region->lose_what_is_under_way();
  *comm.over = true;
}

NcclResult shrink(const CommPtr& parent, const CommPtr& child, NcclComm** out) {
  const NcclResult failure = fault_before(*parent, "split");
  return failure == NcclResult::success ? deliver(parent, child, out) : failure;
}

}  // namespace
}  // namespace fake_gpu

using namespace fake_gpu;

extern "C" {

NcclResult ncclGetUniqueId(NcclUniqueId* id) {
  unsigned char random[16];
  if (::getrandom(random, sizeof random, 0) != sizeof random) return NcclResult::system_error;
  *id = {};
  std::strcpy(id->bytes, kIdMark);
  for (const unsigned char byte : random)
    std::snprintf(id->bytes + std::strlen(id->bytes), 3, "%02x", static_cast<unsigned>(byte));
  return NcclResult::success;
}

NcclResult ncclCommInitRankConfig(NcclComm** comm, int ranks, NcclUniqueId id, int rank, NcclConfig* config) {
  return noted(init(comm, ranks, id, rank, config, "ncclCommInitRankConfig"));
}

NcclResult ncclCommInitRankScalable(NcclComm** comm, int ranks, int rank, int ids, NcclUniqueId* id,
                                    NcclConfig* config) {
  if (ids < 1 || ids > ranks || !id)
    return noted(misused(NcclResult::invalid_argument, "ncclCommInitRankScalable with a bad number of ids"));
  return noted(init(comm, ranks, id[0], rank, config, "ncclCommInitRankScalable"));
}

NcclResult ncclCommSplit(NcclComm* handle, int color, int key, NcclComm** part, NcclConfig* config) {
  const Use use(handle, "ncclCommSplit");
  if (const NcclResult refused = use.refused(false); refused != NcclResult::success) return noted(refused);
  if (!part || (color < 0 && color != dsc::kNcclNoColor) || !good_config(config))
    return noted(misused(NcclResult::invalid_argument, "ncclCommSplit with a bad color or config"));
  if (has_outstanding(*use.comm()))
    return noted(misused(NcclResult::invalid_usage, "ncclCommSplit while operations are outstanding"));
  const CommPtr& parent = use.comm();
  *part = nullptr;
  const std::string name = parent->name + " split " + std::to_string(++parent->children);
  return noted(run_job(parent, [=, parent = parent, child = child_of(parent, config)] {
    return split(parent, child, name, color, key, part);
  }));
}

NcclResult ncclCommShrink(NcclComm* handle, int* excluded, int n_excluded, NcclComm** rest,
                          NcclConfig* config, int flags) {
  const Use use(handle, "ncclCommShrink");
  if (const NcclResult refused = use.refused(false);
      refused != NcclResult::success && !(flags == dsc::kNcclShrinkAbort && is_broken(refused)))
    return noted(refused);
  const CommPtr& parent = use.comm();
  const std::set<int> out(excluded, excluded + n_excluded);
  if (!rest || !good_config(config) || out.empty() || out.contains(parent->rank) || *out.begin() < 0 ||
      *out.rbegin() >= parent->ranks)
    return noted(misused(NcclResult::invalid_argument, "ncclCommShrink with a bad list or config"));
  if (flags == dsc::kNcclShrinkAbort) stop_operations(*parent);
  if (has_outstanding(*parent))
    return noted(misused(NcclResult::invalid_usage, "ncclCommShrink while operations are outstanding"));
  *rest = nullptr;
  const CommPtr child = child_of(parent, config);
  child->ranks = parent->ranks - static_cast<int>(out.size());
  child->rank = parent->rank;
  std::string name = parent->name + " shrink " + std::to_string(++parent->children);
  for (const int gone : out) {
    child->rank -= gone < parent->rank;
    name += " " + std::to_string(gone);
  }
  child->name = derived_name(name);
  return noted(run_job(parent, [=, parent = parent] { return shrink(parent, child, rest); }));
}

NcclResult ncclCommFinalize(NcclComm* handle) {
  const Use use(handle, "ncclCommFinalize");
  if (const NcclResult refused = use.refused(false); refused != NcclResult::success) return noted(refused);
  const CommPtr& comm = use.comm();
  if (comm->finalized || comm->revoked)
    return noted(misused(NcclResult::invalid_usage, "ncclCommFinalize after %s",
                         comm->finalized ? "ncclCommFinalize" : "ncclCommRevoke"));
  comm->finalized = true;
  return noted(run_job(comm, [comm = comm] {
    const NcclResult failure = fault_before(*comm, "finalize");
    if (failure != NcclResult::success) return failure;
    cuda().wait(*comm->order);
    return comm->region->barrier([&] { return ended(*comm); }) ? NcclResult::success
                                                               : NcclResult::internal_error;
  }));
}

// Waits for work on streams, but not for other ranks. The real NCCL also waits for graphs, forever if this
// thread holds them.
NcclResult ncclCommDestroy(NcclComm* handle) {
  if (!handle) return NcclResult::success;
  const Use use(handle, "ncclCommDestroy");
  if (const NcclResult refused = use.refused(false); refused != NcclResult::success) return refused;
  if (*use.comm()->in_graphs > 0)
    return misused(NcclResult::invalid_usage, "ncclCommDestroy while there are graphs with its operations");
  cuda().wait(*use.comm()->order);
  let_go_of_windows(*use.comm());
  forget_comm(handle);
  return NcclResult::success;
}

// May be called from any thread, in any state. Returns when nothing works for the communicator any more. Data
// of completed sends is also lost if the receiver has not taken it yet.
NcclResult ncclCommAbort(NcclComm* handle) {
  if (!handle) return NcclResult::success;
  const CommPtr comm = find_comm(handle, "ncclCommAbort");
  if (!comm) return NcclResult::invalid_argument;
  const int number = count("abort", comm->world_rank);
  if (strikes("abort_hang", comm->world_rank, number)) hang(*comm, [] { return false; });
  if (strikes("abort_slow", comm->world_rank, number)) ::usleep(300'000);
  if (comm->aborted.exchange(true))
    return misused(NcclResult::invalid_argument, "ncclCommAbort while another thread aborts");
  wake(*comm);
  hang(*comm, [&] { return comm->running == 0 && comm->jobs == 0; });
  if (comm->region) comm->region->lose_what_is_under_way();
  *comm->over = true;
  let_go_of_windows(*comm);
  forget_comm(handle);
  return NcclResult::success;
}

NcclResult ncclCommRevoke(NcclComm* handle, int flags) {
  const CommPtr comm = find_comm(handle, "ncclCommRevoke");
  if (!comm) return NcclResult::invalid_argument;
  if (flags != dsc::kNcclRevokeDefault)
    return misused(NcclResult::invalid_argument, "ncclCommRevoke with flags");
  if (comm->revoked.exchange(true)) return misused(NcclResult::invalid_usage, "ncclCommRevoke again");
  return run_job(comm, [comm] {
    stop_operations(*comm);
    return NcclResult::success;
  });
}

NcclResult ncclCommGetAsyncError(NcclComm* handle, NcclResult* error) {
  const CommPtr comm = find_comm(handle, "ncclCommGetAsyncError");
  if (!comm) return NcclResult::invalid_argument;
  const std::lock_guard guard(comm->lock);
  *error = cuda().usable() != kOk ? NcclResult::unhandled_cuda_error : comm->state;
  return NcclResult::success;
}

// Returns the communicator of a query, or null and an error if the communicator is not ready yet.
static CommPtr ready(NcclComm* handle, const char* name) {
  const CommPtr comm = find_comm(handle, name);
  if (!comm) return nullptr;
  {
    const std::lock_guard guard(comm->lock);
    if (comm->state != NcclResult::in_progress) return comm;
  }
  misused(NcclResult::invalid_argument, "%s while the communicator is in progress", name);
  return nullptr;
}

NcclResult ncclCommCount(NcclComm* handle, int* ranks) {
  const CommPtr comm = ready(handle, "ncclCommCount");
  if (comm) *ranks = comm->ranks;
  return comm ? NcclResult::success : NcclResult::invalid_argument;
}

NcclResult ncclCommCuDevice(NcclComm* handle, int* device) {
  const CommPtr comm = ready(handle, "ncclCommCuDevice");
  if (comm) *device = comm->device;
  return comm ? NcclResult::success : NcclResult::invalid_argument;
}

NcclResult ncclCommUserRank(NcclComm* handle, int* rank) {
  const CommPtr comm = ready(handle, "ncclCommUserRank");
  if (comm) *rank = comm->rank;
  return comm ? NcclResult::success : NcclResult::invalid_argument;
}

}  // extern "C"
