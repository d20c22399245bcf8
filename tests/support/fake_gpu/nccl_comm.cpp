#include "nccl_comm.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

namespace fake_gpu {
namespace {

// sleeps are short, because a context that is gone sends no notification
constexpr std::chrono::milliseconds kLongestSleep{10};

struct Comms {
  std::mutex lock;
  uintptr_t last = 0xb000000000;
  std::map<uintptr_t, CommPtr> by_handle;
  std::string last_error = "fake NCCL";
};

Comms& comms() {
  static auto* const all = new Comms;
  return *all;
}

const CudaInternals* find_cuda() {
  void* const library = ::dlopen(FAKE_CUDA_FILE, RTLD_NOW | RTLD_LOCAL);
  void* const symbol = library ? ::dlsym(library, kInternalsName) : nullptr;
  if (!symbol) {
    std::fprintf(stderr, "fake NCCL: no fake CUDA: %s\n", ::dlerror());
    std::abort();
  }
  return reinterpret_cast<decltype(&fake_cuda_internals)>(symbol)();
}

// An earlier failure is kept.
NcclResult finish(const Job& job, NcclResult result) {
  Comm& comm = *job.comm;
  const std::lock_guard guard(comm.lock);
  --comm.jobs;
  if (result != NcclResult::success)
    comm.state = result;
  else if (comm.state == NcclResult::in_progress && comm.jobs == 0)
    comm.state = result;
  comm.changed.notify_all();
  return result;
}

}  // namespace

const CudaInternals& cuda() {
  static const CudaInternals* const table = find_cuda();
  return *table;
}

NcclResult misused(NcclResult result, const char* format, ...) {
  char text[300];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  cuda().misuse("NCCL", "%s", text);
  const std::lock_guard guard(comms().lock);
  comms().last_error = std::string("fake NCCL misuse: ") + text;
  return result;
}

NcclResult failed(Comm& comm, NcclResult result, const std::string& text) {
  const std::lock_guard guard(comm.lock);
  comm.last_error = text;
  if (result != NcclResult::invalid_argument) comm.state = result;
  const std::lock_guard all(comms().lock);
  comms().last_error = text;
  return result;
}

std::string last_error_of(NcclComm* handle) {
  std::unique_lock guard(comms().lock);
  const auto found = comms().by_handle.find(reinterpret_cast<uintptr_t>(handle));
  if (found == comms().by_handle.end()) return comms().last_error;
  const CommPtr comm = found->second;
  guard.unlock();
  const std::lock_guard own(comm->lock);
  return comm->last_error.empty() ? "fake NCCL, with a communicator" : comm->last_error;
}

NcclComm* add_comm(const CommPtr& comm) {
  const std::lock_guard guard(comms().lock);
  comms().last += 16;
  comms().by_handle[comms().last] = comm;
  return comm->handle = reinterpret_cast<NcclComm*>(comms().last);
}

void forget_comm(NcclComm* handle) {
  const std::lock_guard guard(comms().lock);
  comms().by_handle.erase(reinterpret_cast<uintptr_t>(handle));
}

CommPtr find_comm(NcclComm* handle, const char* name) {
  {
    const std::lock_guard guard(comms().lock);
    const auto found = comms().by_handle.find(reinterpret_cast<uintptr_t>(handle));
    if (found != comms().by_handle.end()) return found->second;
  }
  misused(NcclResult::invalid_argument, "%s got what is no communicator (any more)", name);
  return nullptr;
}

Use::Use(NcclComm* handle, const char* name) : comm_(find_comm(handle, name)), name_(name) {
  if (comm_) alone_ = comm_->users.fetch_add(1) == 0;
}

Use::~Use() {
  if (comm_) comm_->users.fetch_sub(1);
}

NcclResult Use::refused(bool operation) const {
  if (!comm_) return NcclResult::invalid_argument;
  if (!alone_)
    return misused(NcclResult::invalid_usage, "%s while another thread uses the communicator", name_);
  if (cuda().usable() != kOk) return NcclResult::unhandled_cuda_error;
  const std::lock_guard guard(comm_->lock);
  if (comm_->state == NcclResult::in_progress)
    return misused(NcclResult::invalid_argument, "%s while the communicator is in progress", name_);
  if (comm_->state != NcclResult::success) return comm_->state;
  if (comm_->revoked && operation) {
    comm_->last_error = "fake NCCL: the communicator was revoked";
    return NcclResult::invalid_usage;
  }
  if (comm_->finalized && operation)
    return misused(NcclResult::invalid_usage, "%s after ncclCommFinalize", name_);
  return NcclResult::success;
}

bool ended(const Comm& comm) { return comm.aborted || cuda().usable() != kOk; }

bool stopped(const Comm& comm) { return comm.revoked || ended(comm); }

void hang(Comm& comm, const std::function<bool()>& stop) {
  std::unique_lock guard(comm.lock);
  while (!stop()) comm.changed.wait_for(guard, kLongestSleep);
}

void wake(Comm& comm) {
  const std::lock_guard guard(comm.lock);
  comm.changed.notify_all();
  if (comm.region) comm.region->ring_bell(comm.rank);
}

NcclResult run_job(const CommPtr& comm, std::function<NcclResult()> body) {
  Job job{comm, std::move(body)};
  {
    const std::lock_guard guard(comm->lock);
    ++comm->jobs;
    comm->state = NcclResult::in_progress;
  }
  if (in_group()) {
    add_job(std::move(job));
    return comm->blocking ? NcclResult::success : NcclResult::in_progress;
  }
  return start_job(std::move(job));
}

NcclResult start_job(Job job) {
  if (job.comm->blocking) return finish(job, job.body());
  std::thread([job = std::move(job)] { finish(job, job.body()); }).detach();
  return NcclResult::in_progress;
}

}  // namespace fake_gpu
