#include "engine_nccl/communicator.hpp"

#include <sched.h>
#include <time.h>

#include <climits>
#include <cstdio>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/thread.hpp"

namespace dsc {
namespace {

constexpr int kEagerPolls = 200;  // polls without a sleep in between
constexpr timespec kPause{0, 100'000};
constexpr int kOtherThreadMs = 1000;  // abort() waits this long for another thread to return from NCCL

NcclConfig config_of(const NcclSettings& settings) {
  NcclConfig config;
  config.blocking = 0;
  if (!settings.name.empty()) config.comm_name = settings.name.c_str();
  if (!settings.net_name.empty()) config.net_name = settings.net_name.c_str();
  if (settings.min_ctas > 0) {
    config.min_ctas = settings.min_ctas;
    // NCCL's default may be less than min_ctas; NCCL reduces this value to its own limit
    config.max_ctas = INT_MAX;
  }
  if (settings.max_ctas > 0) config.max_ctas = settings.max_ctas;
  return config;
}

[[noreturn]] void fail_nccl(NcclResult result, const char* function, const std::string& words) {
  Failure failure;
  failure.code = DSC_ERR_BACKEND;
  failure.native_code = static_cast<int32_t>(result);
  failure.text.add("%s failed: %.400s", function, words.c_str());
  throw Error(failure);
}

}  // namespace

NcclUniqueId make_unique_id(const NcclLibrary& library) {
  NcclUniqueId id{};
  const NcclResult result = library.functions.get_unique_id(&id);
  if (result != NcclResult::success)
    fail_nccl(result, "ncclGetUniqueId", library.functions.get_last_error(nullptr));
  return id;
}

// Begins to make a communicator. The communicator is stored even if this call fails, because it must then be
// aborted.
void NcclCommunicator::begin_to_make(const NcclSettings& settings, const Make& make, const char* function) {
  kept_->settings = settings;
  NcclConfig config = config_of(kept_->settings);
  const NcclResult result = make(&made_, &config);
  if (result != NcclResult::in_progress) comm_.store(made_);
  check(result, function);
}

// Waits until NCCL's own thread has written the new communicator.
void NcclCommunicator::await_made(const char* function, const NcclWait& limits) {
  while (!std::atomic_ref(made_).load()) {
    limits.check();
    if (limits.deadline.passed()) fail(DSC_ERR_TIMEOUT, "%s did not finish in time", function);
    nanosleep(&kPause, nullptr);
  }
  comm_.store(made_);
}

std::shared_ptr<NcclCommunicator> NcclCommunicator::create(const NcclContext& context,
                                                           std::span<const NcclUniqueId> ids, int ranks,
                                                           int rank, const NcclSettings& settings,
                                                           const NcclWait& limits) {
  const DeviceScope scope(*context.device);
  const NcclFunctions& nccl = context.library->functions;
  const char* const function = ids.size() > 1 ? "ncclCommInitRankScalable" : "ncclCommInitRankConfig";
  std::shared_ptr<NcclCommunicator> comm(new NcclCommunicator(context));
  comm->begin_to_make(
      settings,
      [&](NcclComm** out, NcclConfig* config) {
        if (ids.size() == 1) return nccl.comm_init_rank_config(out, ranks, ids[0], rank, config);
        return nccl.comm_init_rank_scalable(out, ranks, rank, static_cast<int>(ids.size()),
                                            const_cast<NcclUniqueId*>(ids.data()), config);
      },
      function);
  comm->await_made(function, limits);
  comm->await_completion(function, limits);
  return comm;
}

std::shared_ptr<NcclCommunicator> NcclCommunicator::adopt(const NcclContext& context, NcclComm* comm) {
  std::shared_ptr<NcclCommunicator> adopted(new NcclCommunicator(context, true));
  adopted->comm_.store(comm);
  return adopted;
}

// NCCL reports the progress of a split on the parent: the child is ready when the parent is ready.
std::shared_ptr<NcclCommunicator> NcclCommunicator::split(int color, int key, const NcclSettings& settings,
                                                          const NcclWait& limits) {
  constexpr const char* kFunction = "ncclCommSplit";
  const DeviceScope scope(*context_.device);
  std::shared_ptr<NcclCommunicator> child(new NcclCommunicator(context_));
  {
    const std::lock_guard lock(mutex_);
    NcclComm* const parent = usable();
    splitting_ = child;
    child->begin_to_make(
        settings,
        [&](NcclComm** out, NcclConfig* config) {
          return nccl().comm_split(parent, color, key, out, config);
        },
        kFunction);
    await_completion(kFunction, limits);
    splitting_ = nullptr;
  }
  if (color == kNcclNoColor) return nullptr;
  child->await_made(kFunction, limits);
  child->await_completion(kFunction, limits);
  return child;
}

// The abort may hang, so the destructor does not wait for it.
NcclCommunicator::~NcclCommunicator() {
  if (adopted_ || ended_.load() || aborting_.load()) return;
  NcclComm* const comm = comm_.load() ? comm_.load() : made_;
  if (!comm) {
    kept_->end();
    return;
  }
  call_out([&] {
    start_thread("dsc-nccl-abort", [context = context_, kept = kept_, comm] {
      call_out([&] {
        const DeviceScope scope(*context.device);
        context.library->functions.comm_abort(comm);
      });
      kept->end();
    }).detach();
  });
}

NcclComm* NcclCommunicator::usable() const {
  if (aborting_.load() || ended_.load())
    fail(DSC_ERR_REVOKED, "NCCL's communicator was aborted during this call");
  return comm_.load();
}

std::string NcclCommunicator::words(NcclResult result) const {
  std::string text = nccl().get_error_string(result);
  const char* const last = nccl().get_last_error(comm_.load());
  return last && *last ? text + ": " + last : text;
}

void NcclCommunicator::check(NcclResult result, const char* function) const {
  if (result == NcclResult::success || result == NcclResult::in_progress) return;
  fail_nccl(result, function, words(result));
}

// Waits until the latest call has completed, because NCCL does not allow another call before then.
void NcclCommunicator::await_completion(const char* function, const NcclWait& limits) {
  for (int polls = 0;; ++polls) {
    NcclResult state = NcclResult::success;
    check(nccl().comm_get_async_error(usable(), &state), "ncclCommGetAsyncError");
    if (state == NcclResult::success) return;
    check(state, function);
    if (polls < kEagerPolls) {
      sched_yield();
      continue;
    }
    limits.check();
    if (limits.deadline.passed()) fail(DSC_ERR_TIMEOUT, "%s did not finish in time", function);
    nanosleep(&kPause, nullptr);
  }
}

void NcclCommunicator::enqueue(const Calls& calls, const NcclWait& limits) {
  const DeviceScope scope(*context_.device);
  const std::lock_guard lock(mutex_);
  calls(usable());
  await_completion("NCCL", limits);
}

NcclWindow* NcclCommunicator::register_window(void* memory, size_t bytes, const NcclWait& limits) {
  if (!nccl().comm_window_register || adopted_) return nullptr;
  NcclWindow** slot = nullptr;
  enqueue(
      [&](NcclComm* comm) {
        slot = &kept_->windows.emplace_back(nullptr);
        check(nccl().comm_window_register(comm, memory, bytes, slot, kNcclWindowDefault),
              "ncclCommWindowRegister");
      },
      limits);
  return *slot;
}

NcclOp NcclCommunicator::make_scaled_sum(NcclComm* comm, void* scalar, NcclType type) {
  NcclOp op{};
  check(nccl().red_op_create_pre_mul_sum(&op, scalar, type, NcclScalarResidence::host_immediate, comm),
        "ncclRedOpCreatePreMulSum");
  kept_->scaled_sums.push_back(op);
  return op;
}

void NcclCommunicator::drop_scaled_sum(NcclComm* comm, NcclOp op) {
  check(nccl().red_op_destroy(op, comm), "ncclRedOpDestroy");
  std::erase(kept_->scaled_sums, op);
}

NcclResult NcclCommunicator::async_error() noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return NcclResult::success;
  NcclResult state = NcclResult::success;
  if (!aborting_.load() && !ended_.load()) nccl().comm_get_async_error(comm_.load(), &state);
  return state == NcclResult::in_progress ? NcclResult::success : state;
}

void NcclCommunicator::begin_finalize() {
  const DeviceScope scope(*context_.device);
  const std::lock_guard lock(mutex_);
  if (!adopted_) check(nccl().comm_finalize(usable()), "ncclCommFinalize");
}

void NcclCommunicator::end_finalize(const NcclWait& limits) {
  const DeviceScope scope(*context_.device);
  const std::lock_guard lock(mutex_);
  await_completion("ncclCommFinalize", limits);
  if (aborting_.exchange(true)) fail(DSC_ERR_REVOKED, "NCCL's communicator was aborted during this call");
  if (adopted_) drop_scaled_sums();
  const NcclResult destroyed = adopted_ ? NcclResult::success : nccl().comm_destroy(comm_.load());
  set_ended();
  check(destroyed, "ncclCommDestroy");
}

void NcclCommunicator::drop_scaled_sums() {
  for (const NcclOp op : kept_->scaled_sums) nccl().red_op_destroy(op, comm_.load());
  kept_->scaled_sums.clear();
}

void NcclCommunicator::after_end(std::function<void()> action) {
  {
    const MutexLock lock(kept_->mutex);
    if (!kept_->ended) return kept_->after.push_back(std::move(action));
  }
  action();
}

void NcclCommunicator::Kept::end() noexcept {
  std::vector<std::function<void()>> actions;
  {
    const MutexLock lock(mutex);
    ended = true;
    actions.swap(after);
  }
  for (auto& action : actions) call_out(action);
}

void NcclCommunicator::set_ended() noexcept {
  ended_.store(true);
  kept_->end();
}

bool NcclCommunicator::leave(const NcclWait& limits) noexcept {
  const Deadline deadline = adopted_ ? Deadline::after_ms(kOtherThreadMs) : limits.deadline;
  {
    const auto lock = lock_until(deadline);  // keeps other threads out of NCCL from now on
    if (adopted_) {
      if (lock) drop_scaled_sums();
      set_ended();
      return true;
    }
    if (!lock) return false;
  }
  return comm_.load() && call_out([&] {
           begin_finalize();
           end_finalize(limits);
         });
}

// Waits for the lock until the deadline. After the deadline, the result does not own the lock.
std::unique_lock<std::mutex> NcclCommunicator::lock_until(Deadline deadline) {
  std::unique_lock lock(mutex_, std::defer_lock);
  while (!lock.try_lock() && !deadline.passed()) nanosleep(&kPause, nullptr);
  return lock;
}

// A thread that waits in await_completion() notices `aborting_` and returns. A thread that hangs in a call of
// NCCL can only be freed by the abort itself, so this function waits only a limited time for the lock.
void NcclCommunicator::abort() noexcept {
  if (aborting_.exchange(true)) return;
  if (!comm_.load()) set_ended();
  if (ended_.load()) return;
  const auto lock = lock_until(Deadline::after_ms(kOtherThreadMs));
  call_out([&] {
    const DeviceScope scope(*context_.device);
    if (ended_.load()) return;
    if (!adopted_)
      nccl().comm_abort(comm_.load());
    else if (nccl().comm_revoke)
      nccl().comm_revoke(comm_.load(), kNcclRevokeDefault);
  });
  set_ended();
}

}  // namespace dsc
