#include "context_parallel/ring.hpp"

#include <cstring>
#include <utility>

#include "base/guard.hpp"
#include "comm/group_ids.hpp"
#include "comm/memory.hpp"
#include "comm/note_writer.hpp"
#include "comm/wait_ignoring_failure.hpp"
#include "dtype/dtype.hpp"
#include "dtype/reduce.hpp"

namespace dsc {
namespace {

constexpr size_t kAlignment = 64;  // areas do not share cache lines

size_t aligned(size_t bytes) noexcept { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

Call message(OpKind kind, int peer, const void* send, void* recv, size_t count, int32_t dtype) {
  Call call;
  call.kind = kind;
  call.root = peer;
  call.send = send;
  call.recv = recv;
  call.count = count;
  call.dtype = dtype;
  return call;
}

// Sizes that differ end the channel alone, and not the communicator.
void compare_sizes(Comm& channel, size_t block_bytes, size_t grad_bytes) {
  Call call;
  call.kind = OpKind::kBarrier;
  NoteWriter note(call);
  note.add("ring of ");
  note.add(block_bytes);
  note.add(" bytes, grad ");
  note.add(grad_bytes);
  call.tag = mix_id(block_bytes, grad_bytes);
  channel.run(call);
}

}  // namespace

std::shared_ptr<BlockRing> BlockRing::create(Comm& comm, size_t block_bytes, size_t grad_bytes) {
  auto channel = comm.make_channel("ring of " + comm.name());
  compare_sizes(*channel, block_bytes, grad_bytes);
  std::byte* memory = nullptr;
  if (comm.size() > 1)
    memory =
        static_cast<std::byte*>(comm.allocate_memory(2 * aligned(block_bytes) + 3 * aligned(grad_bytes)));
  std::shared_ptr<BlockRing> made;
  capture([&] { made = std::make_shared<BlockRing>(std::move(channel), memory, block_bytes, grad_bytes); },
          [&](const Error& error) {
            if (memory) release_memory(memory);
            throw error;
          });
  return made;
}

BlockRing::BlockRing(std::shared_ptr<Comm> channel, std::byte* memory, size_t block_bytes,
                     size_t grad_bytes) noexcept
    : channel_(std::move(channel)), memory_(memory), block_bytes_(block_bytes), grad_bytes_(grad_bytes) {}

// What still moves is failed, and then ends: the other ranks wait for this one in vain.
BlockRing::~BlockRing() {
  channel_->leave();
  if (moves_) wait_ignoring_failure(*moves_, Deadline::never());
  if (memory_) guard_thread([&] { release_memory(memory_); }, [](const char*) {});
}

bool BlockRing::is_on_device(const void* buffer) const {
  return channel_->is_on_device(call_of_bytes(OpKind::kSend, rank(), buffer, nullptr, 1));
}

bool BlockRing::is_own_memory(const void* buffer, size_t bytes) const noexcept {
  const auto from = reinterpret_cast<uintptr_t>(buffer), own = reinterpret_cast<uintptr_t>(memory_);
  return memory_ && bytes > 0 && from < own + 2 * aligned(block_bytes_) + 3 * aligned(grad_bytes_) &&
         own < from + bytes;
}

std::byte* BlockRing::area(int step) const noexcept {
  return memory_ + static_cast<size_t>(step % 2) * aligned(block_bytes_);
}

const void* BlockRing::block_at(int step) const noexcept { return step == 0 ? pass_->block : area(step); }

// With one rank the sum is what it adds.
void* BlockRing::sum_at(int step) const noexcept {
  if (size() == 1) return pass_->grad;
  return memory_ + 2 * aligned(block_bytes_) + static_cast<size_t>(step % 2) * aligned(grad_bytes_);
}

void* BlockRing::incoming_sum() const noexcept {
  return memory_ + 2 * aligned(block_bytes_) + 2 * aligned(grad_bytes_);
}

void BlockRing::begin(const RingPass& pass) {
  if (size() > 1) compare(pass);
  // What is on its way is of a pass that all ranks left after the same step, and so it ends.
  if (moves_) moves_->wait(Deadline::never());
  moves_.reset();
  pass_ = pass;
  is_shown_ = false;
  step_ = 0;
  exchange_or_end();
}

// Ranks that left the pass before at different steps have sent different numbers of messages.
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
  if (pass_) note.add(", left at ");
  if (pass_) note.add(static_cast<size_t>(step_));
  const auto types = static_cast<uint64_t>(pass.dtype) * 256 + static_cast<uint64_t>(pass.grad_dtype);
  call.tag = hash_of(pass.blocks, mix_id(types, pass_ ? static_cast<uint64_t>(step_) + 1 : 0));
  channel_->run(call);
}

bool BlockRing::arrived(Deadline deadline) {
  if (moves_ && !moves_->wait(deadline)) return false;
  moves_.reset();
  return true;
}

std::optional<RingBlock> BlockRing::next(Deadline deadline) {
  if (!pass_) fail(DSC_ERR_STATE, "no pass is open: expected dsc_ring_begin()");
  if (is_shown_) {
    if (!arrived(deadline)) return std::nullopt;
    if (step_ < size()) enter(step_ + 1);
    if (step_ == size() && !arrived(deadline)) return std::nullopt;
  }
  is_shown_ = true;
  if (step_ < size()) return show();
  pass_.reset();
  return RingBlock{};
}

// The rank before has summed up to its own part; this rank's part is added to that.
void BlockRing::enter(int step) {
  if (pass_->grad_dtype != 0 && step_ > 0)
    add(pass_->grad_dtype, sum_at(step_), incoming_sum(), count_at(step_));
  step_ = step;
  exchange_or_end();
}

// A step whose messages could not be started has no block to show.
void BlockRing::exchange_or_end() {
  capture([&] { exchange(); },
          [&](const Error& error) {
            pass_.reset();
            throw Error(error);
          });
}

// Starts what moves during this step: the sum of the step before goes on and that of this step comes in, then
// this step's block goes on and the next one comes in. After the last step the own block's sum comes home.
void BlockRing::exchange() {
  if (size() == 1) return;
  const int to = (rank() + 1) % size(), from = source_at(1);
  const auto& [block, blocks, dtype, grad, grad_dtype] = *pass_;
  std::vector<Call> calls;
  if (grad_dtype != 0 && step_ > 0) {
    void* const sum = step_ < size() ? incoming_sum() : grad;
    calls.push_back(message(OpKind::kSend, to, sum_at(step_ - 1), nullptr, count_at(step_ - 1), grad_dtype));
    calls.push_back(message(OpKind::kRecv, from, nullptr, sum, count_at(step_), grad_dtype));
  }
  if (step_ + 1 < size()) {
    calls.push_back(message(OpKind::kSend, to, block_at(step_), nullptr, count_at(step_), dtype));
    calls.push_back(message(OpKind::kRecv, from, nullptr, area(step_ + 1), count_at(step_ + 1), dtype));
  }
  if (!calls.empty()) moves_ = channel_->start_batch(calls);
}

RingBlock BlockRing::show() {
  RingBlock shown{source_at(step_), block_at(step_), count_at(step_), nullptr};
  if (pass_->grad_dtype == 0) return shown;
  shown.grad = sum_at(step_);
  if (shown.count > 0) std::memset(shown.grad, 0, shown.count * dtype_bytes(pass_->grad_dtype));
  return shown;
}

}  // namespace dsc
