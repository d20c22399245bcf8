#include "engine_nccl/nccl_engine.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <deque>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/transfer.hpp"
#include "comm/work_set.hpp"
#include "dtype/dtype.hpp"
#include "engine_nccl/device_watch.hpp"
#include "engine_nccl/status_query.hpp"

namespace dsc {
namespace {

constexpr int kEndingsMs = 1000;
constexpr uint64_t kFirstSplit = 16;  // number of the first split; lower steps are those of start-up

CudaStream* stream_of(void* stream) { return static_cast<CudaStream*>(stream); }

std::unique_ptr<NcclOperations> operations_of(const std::shared_ptr<NcclCommunicator>& communicator,
                                              const GroupEngine& host) {
  if (!communicator) return nullptr;
  return std::make_unique<NcclOperations>(communicator, host.rank(), host.size());
}

}  // namespace

NcclEngine::NcclEngine(NcclParts parts)
    : world_(std::move(parts.world)),
      host_(std::move(parts.host)),
      settings_(std::move(parts.settings)),
      stream_priority_(parts.stream_priority),
      collectives_(operations_of(parts.communicator, *host_)),
      board_(std::move(parts.board)),
      local_(host_->state.local()),
      on_one_host_(local_.ranks.size() == static_cast<size_t>(host_->size())),
      stream_(world_.nccl.device, parts.stream_priority) {
  local_.group->bind_to_devices({host_->id(), host_->name(), host_->state.global_ranks()});
  if (!board_) return;
  host_->on_status_query(
      [board = board_](const std::string& question) { return answer_of(*board, question); });
}

// Returns the device of a buffer. If the driver fails, the communicator fails, because other ranks would
// wait.
int NcclEngine::place_of(const Call& call, const void* buffer) {
  int number = kHostMemory;
  capture([&] { number = device_of_memory(device(), buffer); },
          [&](const Error& error) { fail_operation(call, board_ ? board_->latest() + 1 : 0, error); });
  return number;
}

bool NcclEngine::takes(const Call& call) {
  const void* const buffers[] = {call.send, call.recv == call.send ? nullptr : call.recv};
  int known = 0, on_device = 0;
  for (const void* buffer : buffers) {
    if (!buffer) continue;
    ++known;
    const int number = place_of(call, buffer);
    if (number == kHostMemory) continue;
    ++on_device;
    if (number != device().number())
      fail(DSC_ERR_INVALID_ARG, "%s is memory of device %d, but this world is bound to device %d",
           buffer == call.send ? "send" : "recv", number, device().number());
  }
  if (known == 0) return call.stream != nullptr;
  if (on_device != 0 && on_device != known)
    fail(DSC_ERR_INVALID_ARG, "send is %s and recv is %s; expected both to be of one kind",
         place_of(call, call.send) == kHostMemory ? "host memory" : "memory of a device",
         place_of(call, call.recv) == kHostMemory ? "host memory" : "memory of a device");
  return on_device != 0;
}

// Throws the refusal of a call. The first call after a failure gets the cause, as a running one would;
// later calls get REVOKED.
void NcclEngine::refuse(const Call& call) const {
  local_.group->look_at_failure();  // this rank may not have seen the failure yet
  Failure refusal = host_->failure();
  const bool is_first = !told_.exchange(true);
  if (ending_.load() == Ending::kStuck)
    refusal.code = DSC_ERR_BACKEND_STUCK;
  else if (!is_first || !is_group_fatal(refusal.code))
    refusal.code = DSC_ERR_REVOKED;
  refusal.operation = op_kind_name(call.kind);
  refusal.revoked = true;
  refusal.text = host_->state.describe(call.kind, board_ ? board_->latest() + 1 : 0,
                                       "the communicator failed before: " + refusal.text);
  fail_with(refusal);
}

// Throws errors that concern the call alone, before other ranks learn of it.
void NcclEngine::check_usable(const Call& call) const {
  if (finalized_.load() || host_->state.is_over())
    fail(DSC_ERR_STATE, "%s",
         host_->state.describe(call.kind, 0, "the communicator was finalized or destroyed").c_str());
  if (host_->revoked() || ending_.load() != Ending::kNot) refuse(call);
  if (!collectives_ && call.prescale != 1)
    fail(DSC_ERR_UNSUPPORTED, "%s on a device in a group of one rank: it cannot be scaled there",
         op_kind_name(call.kind));
  if (const auto reason = unsupported_reason(call))
    fail(DSC_ERR_UNSUPPORTED, "%s(%s) on a device: %s", op_kind_name(call.kind), dtype_name(call.dtype),
         reason->c_str());
  const Transfer transfer(call, host_->rank(), host_->size());
  check_aligned(call, transfer.send_bytes, transfer.recv_bytes);
}

void NcclEngine::note_host_call(const Call& call) {
  if (!board_ || is_message(call) || host_->revoked()) return;
  if (const auto difference = board_->publish(call, false))
    refuse_difference(call, board_->latest(), *difference, nullptr);
}

// A rank that sees a difference between calls does not start its own, and fails the group.
void NcclEngine::refuse_difference(const Call& call, uint64_t number, const BoardDifference& difference,
                                   DeviceRecords* records) {
  Failure cause;
  cause.code = DSC_ERR_MISMATCH;
  cause.rank = difference.rank;
  cause.ranks = {difference.rank};
  cause.sequence = number;
  cause.operation = op_kind_name(call.kind);
  cause.group = host_->id();
  cause.revoked = true;
  cause.text =
      host_->state.describe(call.kind, number, "ranks called different operations: " + difference.text);
  told_.store(true);
  if (records) records->end(tick_now(), recorded_code(cause.code));
  revoke(cause);
  fail_with(cause);
}

// Publishes the calls to the other ranks and enters them into the flight recorder. Returns the last number.
uint64_t NcclEngine::show_all(std::span<const Call> calls, DeviceRecords& records) {
  records.expect(calls.size());
  const int64_t now = tick_now();
  uint64_t number = 0;
  for (const Call& call : calls) {
    std::optional<BoardDifference> difference;
    if (board_) {
      difference = is_message(call) ? board_->show_message(call) : board_->publish(call, true);
      number = is_message(call) ? board_->latest_message(call) : board_->latest();
    } else {
      number = ++alone_calls_;
    }
    records.add(local_.group->recorder().open(recorded_on_device(call, number, *host_), now));
    if (difference) refuse_difference(call, number, *difference, &records);
  }
  return number;
}

NcclWait NcclEngine::patience(int timeout_ms) const {
  return {Deadline::after_ms(timeout_ms > 0 ? timeout_ms : host_->timeout_ms()), [this] {
            if (!host_->revoked() && ending_.load() == Ending::kNot) return;
            Failure cause = host_->failure();
            if (cause.code == DSC_OK) cause.code = DSC_ERR_REVOKED;
            fail_with(cause);
          }};
}

void NcclEngine::copy_locally(const Call& call, CudaStream* stream) const {
  if (call.send == call.recv || !call.send || !call.recv) return;
  const Transfer transfer(call, 0, 1);
  device().copy(reinterpret_cast<CudaAddress>(call.recv), reinterpret_cast<CudaAddress>(call.send),
                transfer.send_bytes, stream);
}

// Puts operations on a stream in NCCL's terms. A barrier is a sum of one word, and an all-to-all in place
// needs a copy of its input, because it would overwrite data that is not sent yet.
void NcclEngine::put(std::span<const Call> calls, CudaStream* stream) {
  const DeviceScope scope(device());
  if (stream == kPerThreadStream) {  // for NCCL's own launch threads this handle means another stream
    order(device(), *world_.gpu.events, stream, stream_.get());
    put(calls, stream_.get());
    return order(device(), *world_.gpu.events, stream_.get(), stream);
  }
  if (!collectives_) {
    for (const Call& call : calls) copy_locally(call, stream);
    return;
  }
  const auto is_plain = [](const Call& call) {
    return call.kind != OpKind::kBarrier && (call.kind != OpKind::kAllToAll || call.send != call.recv);
  };
  const NcclWait waiting = patience(calls[0].timeout_ms);
  if (std::ranges::all_of(calls, is_plain)) return collectives_->enqueue(calls, stream, waiting);
  std::vector<Call> plain(calls.begin(), calls.end());
  std::deque<DeviceBuffer> copies;
  for (Call& call : plain) {
    if (call.kind == OpKind::kBarrier) {
      call.kind = OpKind::kAllReduce;
      call.send = call.recv = world_.barrier_word->data();
      call.count = 1;
      call.dtype = DSC_DTYPE_U8;
      call.op = DSC_OP_MAX;
    } else if (!is_plain(call)) {
      const Transfer transfer(call, host_->rank(), host_->size());
      if (transfer.send_bytes == 0) continue;
      const DeviceBuffer& copy = copies.emplace_back(device(), transfer.send_bytes, stream);
      device().copy(copy.address(), reinterpret_cast<DeviceAddress>(call.send), transfer.send_bytes, stream);
      call.send = copy.data();
    }
  }
  collectives_->enqueue(plain, stream, waiting);
}

// Adds the call to the statistics, with times of 0 because only the device knows them.
void NcclEngine::count(const Call& call) noexcept {
  const Transfer transfer(call, host_->rank(), host_->size());
  stats.add(call.kind, std::max(transfer.send_bytes, transfer.recv_bytes), 0, 0);
}

void NcclEngine::run_collectives(std::span<const Call> calls, void* stream) {
  for (const Call& call : calls) check_usable(call);
  const DeviceScope scope(device());  // encloses the scopes of what is called here
  const bool captured = captures(stream);
  const auto untracked = on_one_host_ || captured ? nullptr : begin_untracked(calls[0], stream);
  DeviceRecords unfollowed;
  DeviceRecords& records = untracked ? untracked->records : unfollowed;
  const uint64_t number = show_all(calls, records);
  may_be_busy_ = true;
  capture(
      [&] {
        put(calls, stream_of(stream));
        if (untracked) device().record(untracked->end_event.get(), stream_of(stream));
      },
      [&](const Error& error) { fail_operation(calls[0], number, error, &records); });
  records.start(tick_now());
  for (const Call& call : calls) count(call);
  if (!captured) latest_call_.store(number);
  if (untracked) return watch_untracked(untracked, number);
  records.detach(captured ? Detached::kCaptured : Detached::kLaunched);
  if (ending_.load() != Ending::kNot) record_uncalled();  // the earlier one may not have seen this call
}

// Makes a work for which only the watch waits. It is needed because the published calls show neither ranks
// of other hosts nor whether a message arrives.
std::shared_ptr<DeviceWork> NcclEngine::begin_untracked(const Call& call, void* stream) {
  auto work = begin_work(call, stream);
  work->untracked = true;
  return work;
}

void NcclEngine::watch_untracked(std::shared_ptr<DeviceWork> untracked, uint64_t number) {
  untracked->set_number(number);
  untracked->set_launched();
  watch(std::move(untracked));
}

bool NcclEngine::captures(void* stream) {
  const DeviceScope scope(device());
  if (!is_capturing(device(), stream_of(stream))) return false;
  has_graphs_.store(true);
  return true;
}

std::shared_ptr<DeviceWork> NcclEngine::start_collectives(std::span<const Call> calls, void* stream) {
  for (const Call& call : calls) check_usable(call);
  auto work = begin_work(calls[0], stream);
  const uint64_t number = show_all(calls, work->records);
  work->set_number(number);
  capture(
      [&] {
        const DeviceScope scope(device());
        device().wait(stream_.get(), work->begin_event.get());
        put(calls, stream_.get());
        device().record(work->end_event.get(), stream_.get());
      },
      [&](const Error& error) { fail_operation(calls[0], number, error, &work->records); });
  work->records.start(tick_now());
  work->set_launched();
  for (const Call& call : calls) count(call);
  if (!work->captured) latest_call_.store(number);
  watch(work);
  return work;
}

// Makes a work with its events; it will wait for the work that is on the caller's stream now.
std::shared_ptr<DeviceWork> NcclEngine::begin_work(const Call& call, void* stream) {
  const DeviceScope scope(device());
  auto work = std::make_shared<DeviceWork>(shared_from_this(), call);
  work->begin_event = world_.gpu.events->take();
  work->end_event = world_.gpu.events->take();
  work->captured = captures(stream);
  device().record(work->begin_event.get(), stream_of(stream));
  return work;
}

DeviceLink& NcclEngine::link_for(const Call& call) {
  const std::pair key{call.kind, call.root};
  {
    const MutexLock lock(mutex_);
    if (const auto known = links_.find(key); known != links_.end()) return *known->second;
  }
  auto made = std::make_unique<DeviceLink>(*this, call);
  DeviceLink& link = *made;
  {
    const MutexLock lock(mutex_);
    links_.emplace(key, std::move(made));
  }
  link.connect(shared_from_this());
  return link;
}

// Throws STATE if a message that is captured has no connection yet. Called before other ranks learn of it.
void NcclEngine::expect_link(const Call& call) {
  const DeviceLink* link = nullptr;  // links exist as long as the engine
  {
    const MutexLock lock(mutex_);
    if (const auto known = links_.find({call.kind, call.root}); known != links_.end())
      link = known->second.get();
  }
  if (!link || !link->ready())
    fail(DSC_ERR_STATE, "the first message to or from a rank cannot be captured: expected one before");
}

void NcclEngine::run(const Call& call) {
  if (!is_message(call)) return run_collectives({&call, 1}, call.stream);
  check_usable(call);
  const DeviceScope scope(device());
  const bool captured = captures(call.stream);
  if (captured) expect_link(call);
  const auto untracked = captured ? nullptr : begin_untracked(call, call.stream);
  DeviceRecords of_graph;
  DeviceRecords& records = untracked ? untracked->records : of_graph;
  const uint64_t number = show_all({&call, 1}, records);
  capture(
      [&] {
        link_for(call).run(call, stream_of(call.stream), patience(call.timeout_ms));
        if (untracked) device().record(untracked->end_event.get(), stream_of(call.stream));
      },
      [&](const Error& error) { fail_operation(call, number, error, &records); });
  records.start(tick_now());
  count(call);
  if (untracked) return watch_untracked(untracked, number);
  records.detach(Detached::kCaptured);
}

std::shared_ptr<DeviceWork> NcclEngine::start_work(const Call& call) {
  if (!is_message(call)) return start_collectives({&call, 1}, call.stream);
  check_usable(call);
  auto work = begin_work(call, call.stream);
  if (work->captured) expect_link(call);
  const uint64_t number = show_all({&call, 1}, work->records);
  work->set_number(number);
  work->records.start(tick_now());  // other threads may see the work from here on
  if (!work->captured) watch(work);
  DeviceRecords* const unwatched = work->captured ? &work->records : nullptr;
  capture([&] { link_for(call).start(work); },
          [&](const Error& error) { fail_operation(call, number, error, unwatched); });
  if (work->captured) watch(work);
  count(call);
  return work;
}

// Checks all calls before the first one begins. If one fails nevertheless, the communicator fails, because
// other ranks wait for that call.
template <typename Start>
void NcclEngine::start_whole(std::span<const Call> calls, const Start& start) {
  for (const Call& call : calls) check_usable(call);
  capture(start, [&](const Error& error) {
    if (!host_->revoked()) fail_quietly(calls.front(), 0, error);
    note_told();
    throw Error(error);
  });
}

void NcclEngine::run_batch(std::span<const Call> calls) {
  void* const stream = calls.front().stream;
  start_whole(calls, [&] {
    std::vector<std::shared_ptr<DeviceWork>> messages;
    std::vector<Call> collectives;
    for (const Call& call : calls)
      if (is_message(call))
        messages.push_back(start_work(call));
      else
        collectives.push_back(call);
    if (!collectives.empty()) run_collectives(collectives, stream);
    const Deadline deadline = Deadline::after_ms(host_->timeout_ms());
    for (const auto& work : messages) join(*work, stream, deadline);
  });
}

std::shared_ptr<Work> NcclEngine::start_batch(std::span<const Call> calls) {
  const auto set = std::make_shared<WorkSet>(calls.size());
  start_whole(calls, [&] {
    std::vector<Call> collectives;
    for (const Call& call : calls)
      if (is_message(call))
        set->add(start_work(call));
      else
        collectives.push_back(call);
    if (!collectives.empty()) set->add(start_collectives(collectives, calls.front().stream));
  });
  return set;
}

// Makes a stream wait for a message. The host waits until the message is on its own stream.
void NcclEngine::join(DeviceWork& message, void* stream, Deadline deadline) {
  if (message.wait_on(stream, deadline)) return;
  capture([&] { DeviceLink::fail_unconnected(message.call()); },
          [&](const Error& error) { fail_operation(message.call(), message.number(), error); });
}

void NcclEngine::watch(std::shared_ptr<DeviceWork> work) {
  if (work->captured) {
    work->records.detach(Detached::kCaptured);
    return work->complete({}, DSC_OK);
  }
  const MutexLock lock(mutex_);
  pending_.push_back(std::move(work));
}

void NcclEngine::let_wait(void* stream, const PooledEvent& event) const {
  const DeviceScope scope(device());
  device().wait(stream_of(stream), event.get());
}

std::shared_ptr<NcclCommunicator> NcclEngine::split(int color, int key, const NcclSettings& settings) {
  const uint64_t step = kFirstSplit + splits_++;
  const NcclWait usual = patience(0);
  std::shared_ptr<NcclCommunicator> part;
  capture(
      [&] {
        drain(Drain::kCollectives, usual.deadline);  // NCCL allows no running operation here
        part = collectives_->communicator().split(
            color, key, settings, {usual.deadline, [&] {
                                     usual.check();
                                     if (board_->in_trouble(step))
                                       fail(DSC_ERR_REVOKED,
                                            "another rank failed to split NCCL's communicator");
                                   }});
      },
      [&](const Error& error) {
        board_->tell_trouble(step);
        throw Error(error);
      });
  return part;
}

bool NcclEngine::deregister_window(NcclWindow* window) noexcept {
  const auto& nccl = world_.nccl.library->functions;
  if (ending_.load() != Ending::kNot || finalized_.load()) return false;
  return call_out([&] {
    collectives_->communicator().enqueue([&](NcclComm* comm) { nccl.comm_window_deregister(comm, window); },
                                         patience(0));
  });
}

void NcclEngine::check_nccl(NcclResult result, const char* function) const {
  if (collectives_) return collectives_->communicator().check(result, function);
  if (result != NcclResult::success)
    fail(DSC_ERR_BACKEND, "%s failed: %s", function, world_.nccl.library->functions.get_error_string(result));
}

// Waits until the works that were started are over. Messages have their own communicators, so kCollectives
// leaves them out.
void NcclEngine::drain(Drain which, Deadline deadline) {
  std::vector<std::shared_ptr<DeviceWork>> running;
  {
    const MutexLock lock(mutex_);
    running = pending_;
  }
  if (which == Drain::kCollectives)
    std::erase_if(running, [](const auto& work) { return is_message(work->call()); });
  for (const auto& work : running)
    if (!work->wait(deadline))
      fail(DSC_ERR_TIMEOUT, "%s number %" PRIu64 " is still running", op_kind_name(work->call().kind),
           work->number());
}

// If this rank fails here, it fails the group, because the other ranks would wait for it. Groups that were
// left before still let their operations run, and the end of the world waits for them, because the process
// may be about to end.
void NcclEngine::finalize() {
  Call call;
  call.kind = OpKind::kFinalize;
  capture(
      [&] {
        const NcclWait waiting = patience(0);
        drain(Drain::kAll, waiting.deadline);
        const auto all = communicators();
        for (const auto& communicator : all) communicator->begin_finalize();
        for (const auto& communicator : all) communicator->end_finalize(waiting);
        finalized_.store(true);
      },
      [&](const Error& error) { fail_operation(call, board_ ? board_->latest() : 0, error); });
  {
    const MutexLock lock(mutex_);
    pending_.clear();
  }
  if (host_->id() == kWorldId)
    await_endings(Deadline::after_ms(std::min(host_->timeout_ms() / 2, kEndingsMs)));
}

std::vector<std::shared_ptr<NcclCommunicator>> NcclEngine::communicators() {
  std::vector<std::shared_ptr<NcclCommunicator>> all;
  if (auto own = communicator()) all.push_back(std::move(own));
  std::vector<const DeviceLink*> links;  // links exist as long as the engine
  {
    const MutexLock lock(mutex_);
    for (const auto& [key, link] : links_) links.push_back(link.get());
  }
  for (const DeviceLink* link : links)
    if (auto communicator = link->communicator()) all.push_back(std::move(communicator));
  return all;
}

}  // namespace dsc
