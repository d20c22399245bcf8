// Runs a hook for host memory on buckets in device memory. Each bucket is copied to the host, reduced there,
// and copied back, in the order of its stream.
#include <utility>
#include <vector>

#include "base/guard.hpp"
#include "comm/operation_work.hpp"
#include "hooks/builtin.hpp"

namespace dsc {
namespace {

constexpr int kWaitIdleMs = 2000;

// A part of a bucket that contains no gaps. On a device, gradients are aligned to 16 bytes, which leaves gaps
// between them. The copy on the host has no gaps, because hooks would also compress the gaps.
struct Run {
  size_t on_device;  // offset in the bucket, in bytes
  size_t on_host;
  size_t bytes;
};

std::vector<Run> runs_of(const HookBucket& bucket) {
  std::vector<Run> runs;
  size_t bytes = 0;
  for (const size_t i : bucket.params) {
    const auto at = static_cast<size_t>(bucket.slots[i].view - bucket.buffer);
    const size_t size = bucket.slots[i].bytes;
    if (size == 0) continue;
    if (!runs.empty() && runs.back().on_device + runs.back().bytes == at) {
      runs.back().bytes += size;
    } else {
      runs.push_back({at, bytes, size});
    }
    bytes += size;
  }
  return runs;
}

size_t bytes_of(std::span<const Run> runs) { return runs.back().on_host + runs.back().bytes; }

// Returns the bucket without gaps, as it is on the host. `slots` gets the slots of its parameters.
HookBucket dense(const HookBucket& bucket, Space& host, std::byte* buffer, std::vector<GradientSlot>& slots) {
  slots.resize(bucket.slots.size());
  size_t at = 0;
  for (const size_t i : bucket.params) {
    slots[i] = bucket.slots[i];
    slots[i].view = buffer + at;
    at += slots[i].bytes;
  }
  return {.index = bucket.index,
          .is_last = bucket.is_last,
          .divisor = bucket.divisor,
          .dtype = bucket.dtype,
          .count = at / dtype_bytes(bucket.dtype),
          .buffer = buffer,
          .stream = nullptr,
          .params = bucket.params,
          .tensors = bucket.tensors,
          .slots = slots,
          .group = bucket.group,
          .space = host};
}

// Host memory for one bucket.
class Staging {
 public:
  explicit Staging(const HookBucket& bucket)
      : space_(Space::of_device(bucket.group)),
        runs_(runs_of(bucket)),
        memory_(space_->stage(bytes_of(runs_))) {}

  // If the device does not finish its copies in time, the memory is leaked, which is better than freeing it.
  ~Staging() {
    bool idle = false;
    if (!copying_) call_out([&] { idle = space_->wait_for(copied_, Deadline::after_ms(kWaitIdleMs)); });
    if (!idle) keep(std::move(memory_));
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  std::byte* data() const noexcept { return memory_.get(); }
  Space& space() const noexcept { return *space_; }
  const Mark& copied() const noexcept { return copied_; }

  // Copies the bucket to the host or back, in the order of the bucket's stream.
  void copy(const HookBucket& bucket, bool to_device) {
    copying_ = true;
    for (const Run& run : runs_) {
      std::byte* const here = memory_.get() + run.on_host;
      std::byte* const there = bucket.buffer + run.on_device;
      space_->copy({.to = to_device ? there : here,
                    .to_dtype = DSC_DTYPE_U8,
                    .from = to_device ? here : there,
                    .from_dtype = DSC_DTYPE_U8,
                    .count = run.bytes},
                   bucket.stream);
    }
    copied_ = space_->mark(bucket.stream);
    copying_ = false;
  }

 private:
  const std::unique_ptr<Space> space_;
  const std::vector<Run> runs_;
  Memory memory_;
  Mark copied_;  // mark after the latest copy
  // True while there are copies without a mark after them. It stays true if one of them fails.
  bool copying_ = false;
};

// The copy of a bucket to the host. Only the reducer holds this work, and waits for it. The work does not
// count as ended before the reducer waits.
class StagingWork final : public OperationWork {
 public:
  StagingWork(Comm& group, std::shared_ptr<const Staging> staging)
      : OperationWork(Call{}, group.id()), group_(group), staging_(std::move(staging)) {}

 private:
  // Waits for the copy. If it does not end in time, the reducer is revoked on all ranks, because they would
  // wait for this rank.
  void await_end(Deadline deadline) override {
    capture(
        [&] {
          if (staging_->space().await(staging_->copied(), "the gradients", deadline)) end(std::nullopt);
        },
        [&](const Error& error) {
          Failure cause = error.failure();
          if (cause.ranks.empty()) cause.ranks = {group_.rank()};
          end(cause);
          group_.revoke(cause);
        });
  }

  Comm& group_;
  const std::shared_ptr<const Staging> staging_;
};

class HostStagedHook final : public BucketHook {
 public:
  explicit HostStagedHook(std::shared_ptr<BucketHook> inner) : inner_(std::move(inner)) {}

  const std::string& name() const noexcept override { return inner_->name(); }

  void prepare(std::span<const Tensor> params) override {
    inner_->prepare(params);
    is_on_device_ = !params.empty() && params[0].device >= 0;
    buckets_.clear();
    host_.reset();
  }

  std::shared_ptr<Work> step(const HookBucket& bucket, int step) override {
    if (!bucket.stream) return inner_->step(bucket, step);
    return step == 0 ? copy_in(bucket) : step_on_host(bucket, step - 1);
  }

  bool needs_host() const noexcept override { return is_on_device_; }
  std::string save() const override { return inner_->save(); }
  void load(std::span<const std::byte> state, std::span<const HookBucket> buckets) override {
    if (!is_on_device_) return inner_->load(state, buckets);
    std::vector<HookBucket> on_host;
    for (const HookBucket& bucket : buckets)
      on_host.push_back(dense(bucket, host(bucket), bucket.buffer, slots_));
    inner_->load(state, on_host);
  }
  void abort() noexcept override { inner_->abort(); }
  bool makes_equal() const noexcept override { return inner_->makes_equal(); }

 private:
  std::shared_ptr<Work> copy_in(const HookBucket& bucket) {
    if (buckets_.size() <= bucket.index) buckets_.resize(bucket.index + 1);
    auto& staging = buckets_[bucket.index];
    if (!staging) staging = std::make_shared<Staging>(bucket);
    staging->copy(bucket, false);
    return std::make_shared<StagingWork>(bucket.group, staging);
  }

  std::shared_ptr<Work> step_on_host(const HookBucket& bucket, int step) {
    Staging& staging = *buckets_[bucket.index];
    auto work = inner_->step(dense(bucket, host(bucket), staging.data(), slots_), step);
    if (!work) staging.copy(bucket, true);
    return work;
  }

  Space& host(const HookBucket& bucket) {
    if (!host_) host_ = Space::of_host(bucket.group);
    return *host_;
  }

  const std::shared_ptr<BucketHook> inner_;
  std::unique_ptr<Space> host_;
  bool is_on_device_ = false;
  std::vector<std::shared_ptr<Staging>> buckets_;
  std::vector<GradientSlot> slots_;  // slots of all parameters in host memory
};

}  // namespace

std::shared_ptr<BucketHook> make_host_staged_hook(std::shared_ptr<BucketHook> inner) {
  return std::make_shared<HostStagedHook>(std::move(inner));
}

}  // namespace dsc
