// A hook that works on host memory, for buckets in device memory. Each bucket is copied to the host, reduced
// there, and copied back in the order of its stream.
#include <utility>
#include <vector>

#include "base/guard.hpp"
#include "comm/device_wait.hpp"
#include "comm/operation_work.hpp"
#include "device/buffer.hpp"
#include "hooks/builtin.hpp"

namespace dsc {
namespace {

constexpr int kWaitIdleMs = 2000;

// A part of a bucket without gaps. On a device gradients begin at multiples of 16 bytes, on the host they do
// not, and hooks compress what is between them, too.
struct Run {
  size_t on_device;  // in bytes, from the start of the bucket
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

// The bucket without gaps, as it is on the host. `slots` receives those of its parameters.
HookBucket dense(const HookBucket& bucket, std::byte* buffer, std::vector<GradientSlot>& slots) {
  HookBucket result = bucket;
  slots.resize(bucket.slots.size());
  size_t at = 0;
  for (const size_t i : bucket.params) {
    slots[i] = bucket.slots[i];
    slots[i].view = buffer + at;
    at += slots[i].bytes;
  }
  result.count = at / dtype_bytes(bucket.dtype);
  result.buffer = buffer;
  result.stream = nullptr;
  result.slots = slots;
  return result;
}

// Memory of the host for one bucket.
class Staging {
 public:
  explicit Staging(const HookBucket& bucket)
      : context_(*bucket.group.device_context()),
        runs_(runs_of(bucket)),
        memory_(context_.device, bytes_of(runs_)),
        copied_(context_.events->take()) {}

  // If the device does not come to its copies, a leak is the lesser evil.
  ~Staging() {
    bool idle = false;
    call_out([&] {
      idle = !begun_ || wait_for(*context_.device, copied_.get(), Deadline::after_ms(kWaitIdleMs));
    });
    if (!idle) memory_.keep();
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  std::byte* data() const noexcept { return memory_.data(); }
  DeviceEvent* copied() const noexcept { return copied_.get(); }

  // In the order of the bucket's stream.
  void copy(const HookBucket& bucket, bool to_device) {
    const DeviceScope scope(*context_.device);
    auto* const stream = static_cast<DeviceStream*>(bucket.stream);
    const auto on_device = reinterpret_cast<DeviceAddress>(bucket.buffer);
    begun_ = true;
    for (const Run& run : runs_) {
      const DeviceAddress here = memory_.address() + run.on_host, there = on_device + run.on_device;
      context_.device->copy(to_device ? there : here, to_device ? here : there, run.bytes, stream);
    }
    context_.device->record(copied_.get(), stream);
  }

 private:
  const DeviceContext context_;
  const std::vector<Run> runs_;
  PinnedBuffer memory_;
  const PooledEvent copied_;  // behind the latest copy
  bool begun_ = false;
};

// A bucket on its way to the host. Only the reducer has this work, and waits for it; it is not known to be
// done before.
class StagingWork final : public OperationWork {
 public:
  StagingWork(Comm& group, std::shared_ptr<const Staging> staging)
      : OperationWork(Call{}, group.id()), group_(group), staging_(std::move(staging)) {}

 private:
  // A device that does not get there ends the reducer on all ranks, which would wait for this one.
  void await_end(Deadline deadline) override {
    capture(
        [&] {
          if (await_event(group_, staging_->copied(), "the gradients", deadline)) end(std::nullopt);
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
    for (const HookBucket& bucket : buckets) on_host.push_back(dense(bucket, bucket.buffer, slots_));
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
    auto work = inner_->step(dense(bucket, staging.data(), slots_), step);
    if (!work) staging.copy(bucket, true);
    return work;
  }

  const std::shared_ptr<BucketHook> inner_;
  bool is_on_device_ = false;
  std::vector<std::shared_ptr<Staging>> buckets_;
  std::vector<GradientSlot> slots_;  // of all parameters, in host memory
};

}  // namespace

std::shared_ptr<BucketHook> make_host_staged_hook(std::shared_ptr<BucketHook> inner) {
  return std::make_shared<HostStagedHook>(std::move(inner));
}

}  // namespace dsc
