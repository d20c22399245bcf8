#include "context_parallel/ring.hpp"

#include <utility>

#include "base/guard.hpp"
#include "comm/group_ids.hpp"
#include "comm/note_writer.hpp"
#include "comm/wait_ignoring_failure.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

// The messages of one step. Empty messages are skipped by both the sender and the receiver.
class Messages {
 public:
  explicit Messages(void* stream) noexcept : stream_(stream) {}

  void send(int to, const void* data, size_t count, int32_t dtype) {
    add(OpKind::kSend, to, data, nullptr, count, dtype);
  }
  void receive(int from, void* data, size_t count, int32_t dtype) {
    add(OpKind::kRecv, from, nullptr, data, count, dtype);
  }
  std::shared_ptr<Work> start(Comm& channel) const {
    return calls_.empty() ? nullptr : channel.start_batch(calls_);
  }

 private:
  void add(OpKind kind, int peer, const void* send, void* recv, size_t count, int32_t dtype) {
    if (count == 0) return;
    Call call;
    call.kind = kind;
    call.root = peer;
    call.send = send;
    call.recv = recv;
    call.count = count;
    call.dtype = dtype;
    call.stream = stream_;
    calls_.push_back(call);
  }

  void* const stream_;
  std::vector<Call> calls_;
};

// Compares the sizes on all ranks. If they differ, only the channel fails, not the communicator.
void compare_sizes(Comm& channel, const RingSizes& sizes) {
  Call call;
  call.kind = OpKind::kBarrier;
  NoteWriter note(call);
  note.add("ring of ");
  note.add(sizes.block_bytes);
  note.add(" bytes, grad ");
  note.add(sizes.grad_bytes);
  call.tag = mix_id(sizes.block_bytes, sizes.grad_bytes);
  channel.run(call);
}

}  // namespace

std::shared_ptr<BlockRing> BlockRing::create(Comm& comm, const RingSizes& sizes) {
  auto channel = comm.make_channel("ring of " + comm.name());
  compare_sizes(*channel, sizes);
  return std::make_shared<BlockRing>(std::move(channel), sizes);
}

BlockRing::BlockRing(std::shared_ptr<Comm> channel, const RingSizes& sizes)
    : channel_(std::move(channel)),
      sizes_(sizes),
      host_memory_(std::make_unique<RingMemory>(*channel_, false, sizes)),
      device_memory_(channel_->device() >= 0 ? std::make_unique<RingMemory>(*channel_, true, sizes)
                                             : nullptr) {}

// On a device, messages of a finished pass may still be moving; wait for them first. For an unfinished pass,
// fail the messages instead of waiting, because this rank will send no more messages to the others.
BlockRing::~BlockRing() {
  const Deadline deadline = Deadline::after_ms(channel_->timeout_ms());
  if (device_memory_ && !pass_) call_out([&] { device_memory_->wait_idle(deadline); });
  channel_->leave();
  if (moves_) wait_ignoring_failure(*moves_, Deadline::never());
  if (pass_) call_out([&] { memory_->mark(); });
}

bool BlockRing::is_own_memory(const void* buffer, size_t bytes) const noexcept {
  return host_memory_->overlaps(buffer, bytes) || (device_memory_ && device_memory_->overlaps(buffer, bytes));
}

RingMemory& BlockRing::memory_of(const RingPass& pass) const noexcept {
  return pass.on_device ? *device_memory_ : *host_memory_;
}

const void* BlockRing::block_at(int step) const noexcept {
  return step == 0 ? pass_->block : memory_->block(step);
}

// Returns the memory of a step's sum. With only one rank, this is the memory for the result of the pass.
void* BlockRing::sum_at(int step) const noexcept { return size() == 1 ? pass_->grad : memory_->sum(step); }

// Runs a part of a step. If it fails, the pass ends, and the ring is revoked on all ranks, because they wait
// for this rank.
template <typename Part>
void BlockRing::carry_out(const Part& part) {
  capture(part, [&](const Error& error) {
    channel_->abort();
    call_out([&] { end_pass(); });
    pass_.reset();
    throw Error(error);
  });
}

void BlockRing::begin(const RingPass& pass) {
  // Check the stream of the previous pass, because end_pass() waits for the work on it.
  if (pass_) memory_->check(pass_->stream, pass_->grad_dtype);
  memory_of(pass).check(pass.stream, pass.grad_dtype);
  if (size() > 1) compare(pass);
  // All ranks have left the previous pass after the same step, so its messages will complete.
  if (pass_) {
    arrived(Deadline::never());
    end_pass();
  }
  memory_of(pass).provide();
  memory_ = &memory_of(pass);
  pass_ = pass;
  is_shown_ = false;
  step_ = 0;
  carry_out([&] {
    memory_->follow(pass.stream);
    exchange();
  });
}

// Compares the passes of all ranks. Ranks that left the previous pass at different steps have sent different
// numbers of messages, which is an error.
void BlockRing::compare(const RingPass& pass) {
  Call call;
  call.kind = OpKind::kBarrier;
  NoteWriter note(call);
  note.add("ring pass [");
  note.add(pass.blocks, size());
  note.add("] ");
  note.add(dtype_name(pass.dtype));
  if (pass.grad_dtype != 0) note.add(", grad ");
  if (pass.grad_dtype != 0) note.add(dtype_name(pass.grad_dtype));
  if (pass.on_device) note.add(" on a device");
  if (pass_) note.add(", left at ");
  if (pass_) note.add(static_cast<size_t>(step_));
  const auto types = (static_cast<uint64_t>(pass.dtype) * 256 + static_cast<uint64_t>(pass.grad_dtype)) * 2 +
                     (pass.on_device ? 1 : 0);
  call.tag = hash_of(pass.blocks, mix_id(types, pass_ ? static_cast<uint64_t>(step_) + 1 : 0));
  channel_->run(call);
}

// Waits for the messages of this step. On a device, the stream of the pass waits; the host only waits until
// all messages are connected to their peers.
bool BlockRing::arrived(Deadline deadline) {
  if (moves_ && !moves_->wait_on(pass_->stream, deadline)) return false;
  moves_.reset();
  return true;
}

std::optional<RingBlock> BlockRing::next(Deadline deadline) {
  if (!pass_) fail(DSC_ERR_STATE, "no pass is open: expected dsc_ring_begin() first");
  memory_->check(pass_->stream, pass_->grad_dtype);
  if (is_shown_) {
    if (!arrived(deadline)) return std::nullopt;
    if (step_ < size()) carry_out([&] { enter(step_ + 1); });
    if (step_ == size() && !arrived(deadline)) return std::nullopt;
  }
  is_shown_ = true;
  RingBlock shown;
  carry_out([&] {
    if (step_ < size())
      shown = show();
    else
      end_pass();
  });
  return shown;
}

bool BlockRing::synchronize(Deadline deadline) {
  if (pass_) memory_->check(pass_->stream, pass_->grad_dtype);
  if (pass_) memory_->mark();
  if (device_memory_ && !device_memory_->wait_idle(deadline)) return false;
  if (channel_->revoked()) throw Error(channel_->failure());
  return true;
}

// Enters the next step. The received sum contains the parts of earlier ranks; this rank first adds its own
// part.
void BlockRing::enter(int step) {
  if (pass_->grad_dtype != 0 && step_ > 0 && count_at(step_) > 0)
    memory_->add(pass_->grad_dtype, sum_at(step_), memory_->incoming_sum(), count_at(step_));
  step_ = step;
  exchange();
}

// Ends a pass. Work on its stream may still use the memory, so the next pass and the destructor wait for it.
void BlockRing::end_pass() {
  memory_->mark();
  pass_.reset();
}

// Starts the messages of this step. First the sum of the previous step is sent, and the sum of this step is
// received. Then the block of this step is sent, and the next block is received. After the last step, the sum
// for this rank's own block is received.
void BlockRing::exchange() {
  if (size() == 1) return;
  const int to = (rank() + 1) % size(), from = source_at(1);
  const int32_t dtype = pass_->dtype, grad_dtype = pass_->grad_dtype;
  Messages messages(pass_->stream);
  if (grad_dtype != 0 && step_ > 0) {
    void* const sum = step_ < size() ? memory_->incoming_sum() : pass_->grad;
    messages.send(to, sum_at(step_ - 1), count_at(step_ - 1), grad_dtype);
    messages.receive(from, sum, count_at(step_), grad_dtype);
  }
  if (step_ + 1 < size()) {
    messages.send(to, block_at(step_), count_at(step_), dtype);
    messages.receive(from, memory_->block(step_ + 1), count_at(step_ + 1), dtype);
  }
  moves_ = messages.start(*channel_);
}

RingBlock BlockRing::show() {
  RingBlock shown{source_at(step_), block_at(step_), count_at(step_), nullptr};
  if (pass_->grad_dtype == 0) return shown;
  shown.grad = sum_at(step_);
  if (shown.count > 0) memory_->zero(shown.grad, shown.count * dtype_bytes(pass_->grad_dtype));
  return shown;
}

}  // namespace dsc
