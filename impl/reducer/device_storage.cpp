// Gradients in memory of a device. Marking a gradient only notes where it is; when a bucket is complete,
// one launch gathers it on the reducer's own stream, after the work on the streams of its gradients.
#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/comm.hpp"
#include "comm/memory.hpp"
#include "device/buffer.hpp"
#include "device/context.hpp"
#include "dtype/dtype.hpp"
#include "reducer/bad_elements.hpp"
#include "reducer/device_norm.hpp"
#include "reducer/storage.hpp"

namespace dsc {
namespace {

DeviceStream* stream_of(void* stream) { return static_cast<DeviceStream*>(stream); }

class DeviceStorage final : public GradientStorage {
 public:
  DeviceStorage(Comm& group, const StorageOptions& options);

  std::byte* arena() const noexcept override { return arena_.get(); }
  void check(const void* gradient, const void* stream, const std::string& who) const override;
  void* stream() const noexcept override { return stream_.get(); }
  void begin(void* stream) override;
  void set_divisor(int divisor) noexcept override { divisor_ = divisor; }
  void accumulate(const GradientSlot& slot, const void* gradient, bool accumulated, void* stream) override;
  void take(const GradientSlot& slot, const void* gradient, bool accumulated, void* stream) override;
  void take_zeros(const GradientSlot& slot) override;
  void follow(const GradientSlot& slot, void* stream) override;
  void gather(size_t bucket) override { fill_once(bucket, divides() ? 1.0 / divisor_ : 1); }
  std::shared_ptr<Work> start(size_t bucket, const Call& call) override;
  Failure outcome(Work& work) override;
  std::optional<BadBucket> find_nonfinite() override;
  void begin_delivery(void* stream) override;
  void deliver(Work* work, std::span<const Delivery> deliveries) override;
  void end(void* stream) override;
  GradientNorm norm(std::span<const GradientPart> parts) override;
  void scale(std::span<const GradientSlot> slots, std::span<void* const> copies, double factor) override;
  bool wait_idle(Deadline deadline) noexcept override;
  void keep() noexcept override {
    static_cast<void>(arena_.release());
    bad_elements_.keep();
  }

 private:
  enum class Fill : uint8_t { kNot, kBegun, kDone };
  enum class Part : uint8_t { kGradient, kView, kSum, kZeros };
  struct Taken {
    const GradientSlot* slot;
    const void* gradient;  // used with kGradient
    Part part;
  };
  struct Bucket {
    std::byte* begin = nullptr;
    int32_t dtype = 0;
    std::vector<Taken> taken;         // of this iteration
    std::vector<PooledEvent> before;  // work on all streams of its gradients except the latest
    std::optional<DeviceStream*> latest;
    Fill fill = Fill::kNot;  // like `work`, used only by the thread that starts the bucket
    std::shared_ptr<Work> work;
  };
  struct ReleaseMemory {
    void operator()(std::byte* memory) const { release_memory(memory); }
  };

  const Device& device() const noexcept { return *context_.device; }
  void wait(DeviceStream* stream, const PooledEvent& event) const;
  void leave_latest(Bucket& bucket) DSC_REQUIRES(mutex_);
  void follow(Bucket& bucket, DeviceStream* stream, bool writes) DSC_REQUIRES(mutex_);
  void has_followed(Bucket& bucket, DeviceStream* stream) DSC_REQUIRES(mutex_);
  void add(const GradientSlot& slot, const void* gradient, bool accumulated, DeviceStream* stream) const;
  void come_behind(Bucket& bucket) DSC_REQUIRES(mutex_);
  void fill_once(size_t bucket, double scale);
  void narrow(Bucket& bucket);
  void fill(Bucket& bucket, double scale, DeviceAddress norm);
  void divide_view(const GradientSlot& slot, DeviceAddress norm) const;
  bool divides() const noexcept { return is_pytorch_ && divisor_ != 1; }
  // Calls launch(copy) for the parts of each type, and forgets them.
  template <typename Launch>
  void launch_parts(const Bucket& bucket, const Launch& launch);
  static size_t element_of(const Bucket& bucket, const GradientSlot& slot) {
    return static_cast<size_t>(slot.view - bucket.begin) / dtype_bytes(slot.dtype);
  }

  const DeviceContext context_;
  Comm& group_;
  const Kernels& kernels_;
  const bool is_pytorch_;  // multiplies a copied gradient by 1 / divisor, divides one in its view
  int divisor_;
  Stream stream_;
  std::unique_ptr<std::byte, ReleaseMemory> arena_;
  BadElements bad_elements_;
  PooledEvent begun_;
  DeviceStream* end_stream_ = nullptr;                // of the latest end()
  std::map<int32_t, std::vector<BucketPart>> parts_;  // of the next launches, by their tensors' type
  Mutex mutex_;
  std::vector<Bucket> buckets_;  // mutex_ guards taken, before and latest
};

DeviceStorage::DeviceStorage(Comm& group, const StorageOptions& options)
    : context_(*group.device_context()),
      group_(group),
      kernels_(context_.kernels->get()),
      is_pytorch_(options.average == DSC_AVERAGE_PYTORCH),
      divisor_(group.size()),
      stream_(context_.device, 0),
      arena_(static_cast<std::byte*>(group.allocate_on_device(
          options.bytes + BucketLayout::kAlignment))),  // also for empty ones at the end
      bad_elements_(context_, group, options.buckets.size()),
      buckets_(options.buckets.size()) {
  for (size_t b = 0; b < buckets_.size(); ++b) {
    buckets_[b].begin = arena_.get() + options.buckets[b].offset;
    buckets_[b].dtype = options.buckets[b].dtype;
  }
}

void DeviceStorage::check(const void* gradient, const void*, const std::string& who) const {
  expect_gradient_on(group_, device().number(), gradient, who);
}

// Begins after the iteration before and after the work that is on the stream now. During a capture the
// order with the iteration before is left out, because captured work cannot wait for work outside the
// graph.
void DeviceStorage::begin(void* stream) {
  const DeviceScope scope(device());
  DeviceStream* const own = stream_of(stream);
  const bool captured = is_capturing(device(), own);
  bad_elements_.expect(captured);
  if (!captured) order(device(), *context_.events, stream_.get(), own);
  begun_ = context_.events->take();
  device().record(begun_.get(), own);
  wait(stream_.get(), begun_);
  bad_elements_.begin(stream_.get());
  const MutexLock lock(mutex_);
  for (Bucket& bucket : buckets_) {
    bucket.taken.clear();
    bucket.before.clear();
    bucket.latest.reset();
    bucket.fill = Fill::kNot;
    bucket.work.reset();
  }
}

void DeviceStorage::wait(DeviceStream* stream, const PooledEvent& event) const {
  device().wait(stream, event.get());
}

// Records an event for the work on the bucket's latest stream, for which the bucket has to wait.
void DeviceStorage::leave_latest(Bucket& bucket) {
  if (!bucket.latest) return;
  PooledEvent& event = bucket.before.emplace_back(context_.events->take());
  device().record(event.get(), *bucket.latest);
  bucket.latest.reset();
}

// Called before a gradient on this stream is noted. If it `writes` to the bucket on that stream, it must
// wait for all gradients before.
void DeviceStorage::follow(Bucket& bucket, DeviceStream* stream, bool writes) {
  if (bucket.latest != stream) leave_latest(bucket);
  if (!writes) return;
  wait(stream, begun_);
  for (const PooledEvent& event : bucket.before) wait(stream, event);
}

// The event for the per-thread stream is recorded at once, because no other thread can refer to this
// stream.
void DeviceStorage::has_followed(Bucket& bucket, DeviceStream* stream) {
  bucket.latest = stream;
  if (stream == kPerThreadStream) leave_latest(bucket);
}

// Copies or adds a gradient on the caller's stream, so that the caller may reuse its memory in stream
// order. As on the host, one of another type is converted before it is added.
void DeviceStorage::add(const GradientSlot& slot, const void* gradient, bool accumulated,
                        DeviceStream* stream) const {
  if (slot.bytes == 0) return;
  const DeviceAddress view = address_of(slot.view);
  DeviceAddress from = address_of(gradient);
  std::optional<DeviceBuffer> converted;
  if (accumulated && slot.gradient_dtype != slot.dtype)
    from = converted.emplace(device(), slot.bytes, stream).address();
  if (!accumulated || converted)
    kernels_.copy({.from = address_of(gradient),
                   .to = accumulated ? from : view,
                   .count = slot.count,
                   .from_dtype = slot.gradient_dtype,
                   .to_dtype = slot.dtype},
                  stream);
  if (!accumulated) return;
  kernels_.sum_parts({.from = std::min(view, from),
                      .to = view,
                      .count = slot.count,
                      .n_parts = 2,
                      .dtype = slot.dtype,
                      .part_bytes = std::max(view, from) - std::min(view, from)},
                     stream);
}

void DeviceStorage::accumulate(const GradientSlot& slot, const void* gradient, bool accumulated,
                               void* stream) {
  const DeviceScope scope(device());
  const MutexLock lock(mutex_);
  Bucket& bucket = buckets_[slot.bucket];
  follow(bucket, stream_of(stream), true);
  add(slot, gradient, accumulated, stream_of(stream));
  has_followed(bucket, stream_of(stream));
}

void DeviceStorage::take(const GradientSlot& slot, const void* gradient, bool accumulated, void* stream) {
  const DeviceScope scope(device());
  const MutexLock lock(mutex_);
  const bool adds = gradient && accumulated;
  Bucket& bucket = buckets_[slot.bucket];
  follow(bucket, stream_of(stream), adds);
  if (adds) add(slot, gradient, true, stream_of(stream));
  has_followed(bucket, stream_of(stream));
  const Part part = adds ? Part::kSum : gradient ? Part::kGradient : Part::kView;
  bucket.taken.push_back({&slot, gradient, part});
}

void DeviceStorage::take_zeros(const GradientSlot& slot) {
  const MutexLock lock(mutex_);
  buckets_[slot.bucket].taken.push_back({&slot, nullptr, Part::kZeros});
}

void DeviceStorage::follow(const GradientSlot& slot, void* stream) {
  const DeviceScope scope(device());
  const MutexLock lock(mutex_);
  Bucket& bucket = buckets_[slot.bucket];
  follow(bucket, stream_of(stream), false);
  has_followed(bucket, stream_of(stream));
}

void DeviceStorage::come_behind(Bucket& bucket) {
  leave_latest(bucket);
  for (const PooledEvent& event : bucket.before) wait(stream_.get(), event);
}

template <typename Launch>
void DeviceStorage::launch_parts(const Bucket& bucket, const Launch& launch) {
  for (auto& [dtype, parts] : parts_) {
    if (parts.empty()) continue;
    launch(BucketCopy{.parts = parts,
                      .tensor_dtype = dtype,
                      .bucket = address_of(bucket.begin),
                      .bucket_dtype = bucket.dtype});
    parts.clear();
  }
}

// Converts gradients to a type with fewer bits, in which they are scaled and counted afterwards: as on the
// host, and because a number that becomes infinite counts.
void DeviceStorage::narrow(Bucket& bucket) {
  for (auto& [slot, gradient, part] : bucket.taken) {
    if (part != Part::kGradient || dtype_bytes(slot->gradient_dtype) <= dtype_bytes(slot->dtype)) continue;
    part = Part::kSum;
    parts_[slot->gradient_dtype].push_back({address_of(gradient), slot->count, element_of(bucket, *slot)});
  }
  launch_parts(bucket, [&](const BucketCopy& copy) { kernels_.gather(copy, stream_.get()); });
}

// PyTorch's rule for a gradient that was made in its view.
void DeviceStorage::divide_view(const GradientSlot& slot, DeviceAddress norm) const {
  const DeviceAddress view = address_of(slot.view);
  if (norm != 0)
    kernels_.copy({.from = view,
                   .to = view,
                   .count = slot.count,
                   .from_dtype = slot.dtype,
                   .to_dtype = slot.dtype,
                   .norm = norm},
                  stream_.get());
  kernels_.sum_parts({.from = view,
                      .to = view,
                      .count = slot.count,
                      .n_parts = 1,
                      .dtype = slot.dtype,
                      .divisor = static_cast<double>(divisor_)},
                     stream_.get());
}

// Gathers a bucket in one launch for each type of gradients. Those that are in the bucket already take part
// only if they must be scaled or counted.
void DeviceStorage::fill(Bucket& bucket, double scale, DeviceAddress norm) {
  narrow(bucket);
  for (const auto& [slot, gradient, part] : bucket.taken) {
    if (slot->bytes == 0) continue;
    if (part == Part::kZeros) {
      device().zero(address_of(slot->view), slot->bytes, stream_.get());
    } else if (part == Part::kView && divides()) {
      divide_view(*slot, norm);
    } else if (part == Part::kGradient) {
      parts_[slot->gradient_dtype].push_back({address_of(gradient), slot->count, element_of(bucket, *slot)});
    } else if (scale != 1 || norm != 0) {
      parts_[slot->dtype].push_back({address_of(slot->view), slot->count, element_of(bucket, *slot)});
    }
  }
  launch_parts(bucket, [&](BucketCopy copy) {
    copy.scale = scale;
    copy.norm = norm;
    kernels_.gather(copy, stream_.get());
  });
}

void DeviceStorage::fill_once(size_t b, double scale) {
  Bucket& bucket = buckets_[b];
  if (bucket.fill == Fill::kBegun)  // a part may be scaled already
    fail(DSC_ERR_BACKEND, "bucket %zu could not be gathered", b);
  if (bucket.fill == Fill::kDone) return;
  const DeviceScope scope(device());
  const MutexLock lock(mutex_);
  bucket.fill = Fill::kBegun;
  come_behind(bucket);
  fill(bucket, scale, bad_elements_.norm_of(b, bucket.dtype));
  bucket.fill = Fill::kDone;
}

// The device's engine scales its inputs, except for types that it cannot scale, which fill() scales.
std::shared_ptr<Work> DeviceStorage::start(size_t b, const Call& call) {
  Call launched = call;
  launched.stream = stream_.get();
  launched.tag = static_cast<uint64_t>(bad_elements_.check());  // must be equal on all ranks
  if (bad_elements_.looks())
    std::snprintf(launched.note, sizeof launched.note, "bucket %zu, non-finite check %d", b,
                  static_cast<int>(bad_elements_.check()));
  double scale = divides() ? 1.0 / divisor_ : 1;
  if (dtype_bytes(call.dtype) == 1) scale *= std::exchange(launched.prescale, 1);
  fill_once(b, scale);
  return buckets_[b].work = group_.start(launched);
}

// Does not wait: an operation that is still running counts as a success.
Failure DeviceStorage::outcome(Work& work) {
  Failure failure = work.failure();
  if (failure.code == DSC_IN_PROGRESS) failure.code = DSC_OK;
  return failure;
}

std::optional<BadBucket> DeviceStorage::find_nonfinite() {
  if (!bad_elements_.looks()) return std::nullopt;
  return bad_elements_.find(stream_.get(), [&](size_t b) {
    const Bucket& bucket = buckets_[b];
    BadElements::Input input;
    if (bucket.work) {
      bucket.work->wait_on(stream_.get(), Deadline::never());
      input.number = bucket.work->number();
    }
    const MutexLock lock(mutex_);
    for (const auto& [slot, gradient, part] : bucket.taken)
      input.parts.push_back({part == Part::kGradient ? gradient : slot->view, slot->count,
                             element_of(bucket, *slot),
                             part == Part::kGradient ? slot->gradient_dtype : slot->dtype});
    return input;
  });
}

void DeviceStorage::begin_delivery(void* stream) {
  order(device(), *context_.events, stream_of(stream), stream_.get());
}

void DeviceStorage::deliver(Work* work, std::span<const Delivery> deliveries) {
  if (work) work->wait_on(stream_.get(), Deadline::never());
  if (deliveries.empty()) return;
  const DeviceScope scope(device());
  const Bucket& bucket = buckets_[deliveries.front().slot->bucket];
  for (const auto& [slot, to] : deliveries)
    parts_[slot->gradient_dtype].push_back({address_of(to), slot->count, element_of(bucket, *slot)});
  launch_parts(bucket, [&](const BucketCopy& copy) { kernels_.scatter(copy, stream_.get()); });
}

// An iteration that is not reduced has put work on other streams that nobody has waited for yet.
void DeviceStorage::end(void* stream) {
  {
    const DeviceScope scope(device());
    const MutexLock lock(mutex_);
    for (Bucket& bucket : buckets_)
      if (bucket.fill == Fill::kNot) come_behind(bucket);
  }
  end_stream_ = stream_of(stream);
  order(device(), *context_.events, stream_.get(), end_stream_);
}

GradientNorm DeviceStorage::norm(std::span<const GradientPart> parts) {
  const DeviceScope scope(device());
  if (is_capturing(device(), end_stream_))
    fail(DSC_ERR_STATE,
         "the stream of finish is captured in a graph, expected one that is not: the host reads the norm");
  order(device(), *context_.events, end_stream_, stream_.get());
  return device_norm(group_, stream_.get(), address_of(arena_.get()), parts);
}

void DeviceStorage::scale(std::span<const GradientSlot> slots, std::span<void* const> copies, double factor) {
  const DeviceScope scope(device());
  device_scale(context_, stream_.get(), address_of(arena_.get()), slots, copies, factor);
  order(device(), *context_.events, stream_.get(), end_stream_);
}

bool DeviceStorage::wait_idle(Deadline deadline) noexcept {
  bool idle = false;
  call_out([&] { idle = wait_for(device(), *context_.events, stream_.get(), deadline); });
  return idle;
}

}  // namespace

std::unique_ptr<GradientStorage> make_device_storage(Comm& group, const StorageOptions& options) {
  Call call;
  call.kind = OpKind::kAllReduce;
  call.op = options.average == DSC_AVERAGE_POST ? DSC_OP_AVG : DSC_OP_SUM;
  for (const auto& bucket : options.buckets) {
    call.dtype = bucket.dtype;
    if (const auto reason = group.unsupported_reason(call))
      fail(DSC_ERR_UNSUPPORTED, "gradients of %s on a device: %s", dtype_name(bucket.dtype), reason->c_str());
  }
  return std::make_unique<DeviceStorage>(group, options);
}

}  // namespace dsc
