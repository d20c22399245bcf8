#include "comm/comm.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "base/fixed_text.hpp"
#include "comm/groups.hpp"
#include "comm/work_set.hpp"
#include "control/group.hpp"
#include "control/trace.hpp"
#include "device/context.hpp"

namespace dsc {
namespace {

// Returns true for operations that always run on the group engine. For other operations, the engine depends
// on the memory of their buffers.
bool is_of_host(const Call& call) {
  return call.kind == OpKind::kMonitoredBarrier || call.kind >= OpKind::kFinalize;
}

[[noreturn]] void refuse_without_device() {
  fail(DSC_ERR_UNSUPPORTED, "this communicator is not bound to a device: set device in dsc_init_options_t");
}

}  // namespace

uint64_t Comm::next_serial() noexcept {
  static std::atomic<uint64_t> latest{0};
  return latest.fetch_add(1) + 1;
}

Comm::Comm(Engines engines)
    : group_(std::move(engines.group)), state_(group_->state), device_(std::move(engines.device)) {
  if (const auto& local = state_.local().group)
    local->on_finalize([this] {
      if (!device_ || !device_->has_running()) group_->leave_if_idle();
    });
}

Comm::~Comm() {
  if (const auto& local = state_.local().group) local->on_finalize({});
  leave();
}

void Comm::check_rank(const char* name, int rank) const {
  if (rank >= 0 && rank < size()) return;
  FixedText<128> hint;
  if (rank >= size() && rank < world_info().world_size) {
    hint.add("; dsc_comm_group_rank() translates ranks of the world: rank %d ", rank);
    const int member = group_rank(rank);
    if (member < 0) hint += "is not in this group";
    if (member >= 0) hint.add("is rank %d here", member);
  }
  fail(DSC_ERR_INVALID_ARG, "%s is %d, expected 0 to %d%s", name, rank, size() - 1, hint.c_str());
}

int Comm::global_rank(int group_rank) const {
  if (group_rank < 0 || group_rank >= size())
    fail(DSC_ERR_INVALID_ARG, "rank is %d, expected 0 to %d", group_rank, size() - 1);
  return state_.global_ranks()[static_cast<size_t>(group_rank)];
}

int32_t Comm::backend() const noexcept { return device_ ? DSC_BACKEND_DEVICE : group_->backend(); }

const DeviceContext* Comm::device_context() const noexcept { return device_ ? &device_->context() : nullptr; }

int32_t Comm::device() const noexcept { return device_ ? device_->context().device->number() : -1; }

int32_t Comm::device_of(const void* memory) const {
  return device_ ? device_of_memory(*device_->context().device, memory) : kHostMemory;
}

std::optional<std::string> Comm::unsupported_reason(const Call& call) const {
  return device_ ? device_->unsupported_reason(call) : group_->unsupported_reason(call);
}

// ---- operations

bool Comm::is_on_device(const Call& call) { return device_ && !is_of_host(call) && device_->takes(call); }

Engine& Comm::engine_beside_device(const Call& call) {
  if (is_on_device(call)) return *device_;
  group_->expect_supported(call);  // checked first, so that a rejected call takes no sequence number
  device_->note_host_call(call);
  return *group_;
}

// Returns whether the buffers of a batch are on the device. Checks all calls before any of them starts, so
// that a rejected batch starts no operation and takes no sequence number.
bool Comm::is_on_device(const std::vector<Call>& calls) {
  const auto here = std::ranges::count_if(calls, [this](const Call& call) { return is_on_device(call); });
  const auto all = std::ssize(calls);
  if (here != 0 && here != all)
    fail(DSC_ERR_INVALID_ARG,
         "the batch has %td operations on host memory and %td on device memory, expected one kind of memory",
         all - here, here);
  if (here != 0) return true;
  for (const Call& call : calls) group_->expect_supported(call);
  for (const Call& call : calls)
    if (device_) device_->note_host_call(call);
  return false;
}

void Comm::run_batch(const std::vector<Call>& calls) {
  if (is_on_device(calls)) return device_->run_batch(calls);
  run_all(*group_, calls);
}

std::shared_ptr<Work> Comm::start_batch(const std::vector<Call>& calls) {
  return is_on_device(calls) ? device_->start_batch(calls) : start_all(*group_, calls);
}

// Adds a collective call that moves no data, such as an allocation, to the comparison of calls. A rank that
// makes this call at a different point of the program is then detected.
void Comm::note_step(OpKind kind) {
  if (!device_) return;
  Call call;
  call.kind = kind;
  device_->note_host_call(call);
}

void* Comm::allocate_memory(size_t bytes) {
  note_step(OpKind::kMemAlloc);
  return group_->allocate(bytes);
}

void* Comm::allocate_on_device(size_t bytes) {
  if (!device_) refuse_without_device();
  note_step(OpKind::kMemAlloc);
  return device_->allocate(bytes);
}

void Comm::register_memory(void* memory, size_t bytes) {
  if (const int32_t device = device_of(memory); device != kHostMemory)
    fail(DSC_ERR_UNSUPPORTED, "memory is on device %d, expected host memory", device);
  note_step(OpKind::kMemRegister);
  group_->register_memory(memory, bytes);
}

// ---- groups

std::shared_ptr<Comm> Comm::open(int32_t color, const GroupOptions& options,
                                 const DeviceEngine::MakeGroup& make) {
  note_step(OpKind::kSplit);
  Engines made = device_ ? device_->make_group(make, color, options) : Engines{make(), nullptr};
  return made.group ? std::make_shared<Comm>(std::move(made)) : nullptr;
}

std::shared_ptr<Comm> Comm::split(int32_t color, int32_t key, const GroupOptions& options) {
  return open(color, options, [&] { return split_group(*group_, color, key, options); });
}

std::shared_ptr<Comm> Comm::create_group(std::span<const int32_t> ranks, const GroupOptions& options) {
  return open(0, options, [&] { return dsc::create_group(*group_, ranks, options); });
}

std::shared_ptr<Comm> Comm::adopt(void* communicator, const GroupOptions& options) {
  if (!device_) refuse_without_device();
  note_step(OpKind::kSplit);
  return std::make_shared<Comm>(device_->adopt(communicator, options));
}

// First registers the channel and then checks whether the group has failed or was left. A failure at any time
// therefore ends the channel, either here or through the registration.
std::shared_ptr<Comm> Comm::make_channel(const std::string& name) {
  std::vector<int32_t> everybody(static_cast<size_t>(size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  auto channel = create_group(everybody, {name, timeout_ms()});
  state_.add_channel(channel->group_);
  if (group_->revoked()) state_.fail_channels(group_->failure());
  if (state_.left()) channel->leave();
  return channel;
}

int32_t Comm::agree_on(int32_t flags) {
  state_.expect_open();
  return group_->agree_on(flags);
}

std::shared_ptr<Comm> Comm::shrink(const GroupOptions& options) {
  state_.expect_open();
  Engines made = device_ ? device_->shrink(options) : Engines{group_->shrink(options), nullptr};
  auto rest = std::make_shared<Comm>(std::move(made));
  const MutexLock lock(mutex_);
  successor_ = rest;
  return rest;
}

std::shared_ptr<Comm> Comm::successor() const noexcept {
  const MutexLock lock(mutex_);
  const auto made = successor_.lock();
  return made && !made->state_.left() ? made : nullptr;
}

// ---- failure and end

// The program already knows the cause, because a call has reported it or because the program itself revokes
// the group. Later calls therefore report REVOKED. The cause may name an operation of another group.
void Comm::revoke(const Failure& cause) noexcept {
  state_.note_reported();
  Failure own = cause;
  if (cause.group != id()) {
    own.operation = {};
    own.sequence = 0;
  }
  group_->revoke(own);
  if (device_) device_->give_up();
}

void Comm::abort() noexcept {
  state_.note_abort();
  revoke(state_.aborted());
}

void Comm::leave() noexcept {
  if (device_ && device_->has_running()) group_->revoke(state_.destroyed());
  group_->leave();
  state_.leave_channels();
  if (!device_) return;
  device_->give_up();
  device_->await_adopted();
}

void Comm::finalize() {
  if (finalized()) fail(DSC_ERR_STATE, "the communicator is already finalized");
  note_step(OpKind::kFinalize);
  if (device_) device_->finalize();
  group_->finalize();
  state_.set_finalized();
}

void Comm::end_world() noexcept {
  state_.host().end();
  if (device_) device_->give_up();
}

// ---- what is known

std::vector<OpStats> Comm::stats() const {
  std::vector<OpStats> all = group_->stats.read();
  if (!device_) return all;
  for (OpStats& of : device_->stats.read()) {
    of.operation += " (device)";
    all.push_back(std::move(of));
  }
  return all;
}

std::string Comm::trace(const char* reason) const {
  return trace_text(state_.host(), state_.host().records(), reason);
}

void Comm::trace_iterations(const std::shared_ptr<const IterationSource>& source) {
  if (state_.local().group) state_.host().add_iterations(source);
}

std::string Comm::trace_path() const {
  const HostGroup& host = state_.host();
  return host.trace_folder().empty() ? ""
                                     : dsc::trace_path(host.trace_folder(), host.global_rank(host.rank()));
}

std::string Comm::tuning() const { return tuning_text(state_.local().group->tuning()); }

}  // namespace dsc
