#include "reducer/storage.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

std::unique_ptr<Space> make_space(Comm& group, bool on_device, const StorageOptions& options) {
  auto space = Space::of(group, on_device);
  Call call;
  call.kind = OpKind::kAllReduce;
  call.op = options.average == DSC_AVERAGE_POST ? DSC_OP_AVG : DSC_OP_SUM;
  std::vector<int32_t> dtypes;
  for (const auto& bucket : options.buckets) dtypes.push_back(bucket.dtype);
  space->check_reductions(call, dtypes);
  return space;
}

}  // namespace

// Allocates extra memory on a device, so that empty buckets at the end also have a valid address.
GradientStorage::GradientStorage(Comm& group, bool on_device, const StorageOptions& options)
    : group_(group),
      space_(make_space(group, on_device, options)),
      is_pytorch_(options.average == DSC_AVERAGE_PYTORCH),
      divisor_(group.size()),
      stream_(space_->make_stream()),
      arena_(space_->allocate(options.bytes + (on_device ? BucketLayout::kAlignment : 0))) {
  if (on_device)
    gather_ = std::make_unique<BucketGather>(*space_, group, stream_.get(), arena_.get(), options.buckets);
}

void GradientStorage::check(const void* gradient, const void* stream, const std::string& who) const {
  space_->check_stream(stream);
  space_->check_gradient(gradient, who);
}

void GradientStorage::begin(void* stream) {
  if (gather_) gather_->begin(stream);
}

void GradientStorage::accumulate(const GradientSlot& slot, const void* gradient, bool accumulated,
                                 void* stream) {
  if (gather_) return gather_->accumulate(slot, gradient, accumulated, stream);
  if (slot.count == 0) return;
  if (accumulated)
    space_->add(slot.copy_of(gradient), stream);
  else
    space_->copy(slot.copy_of(gradient), stream);
}

// Follows PyTorch's rule: a gradient that is copied is multiplied by 1 / divisor, and one that is not copied
// is divided.
void GradientStorage::take(const GradientSlot& slot, const void* gradient, bool accumulated, void* stream) {
  if (gather_) return gather_->take(slot, gradient, accumulated, stream);
  if (slot.count == 0) return;
  if (!gradient) {
    if (divides()) space_->divide(slot.elements(), divisor_, stream);
    return;
  }
  if (accumulated) {
    space_->add(slot.copy_of(gradient), stream);
    if (divides()) space_->scale(slot.elements(), 1.0 / divisor_, stream);
    return;
  }
  ElementCopy copy = slot.copy_of(gradient);
  if (divides()) copy.scale = 1.0 / divisor_;
  space_->copy(copy, stream);
}

void GradientStorage::take_zeros(const GradientSlot& slot) {
  if (gather_) return gather_->take_zeros(slot);
  space_->zero(slot.view, slot.bytes, nullptr);
}

void GradientStorage::follow(const GradientSlot& slot, void* stream) {
  if (gather_) gather_->follow(slot, stream);
}

void GradientStorage::gather(size_t bucket) {
  if (gather_)
    gather_->fill(bucket, {.scale = divides() ? 1.0 / divisor_ : 1, .divisor = divides() ? divisor_ : 1});
}

// On a device, the engine scales the elements. If it cannot scale a type, they are scaled when they are
// gathered. Ranks compare the tag of the call, so the tag contains the values that must be equal on all
// ranks.
std::shared_ptr<Work> GradientStorage::start(size_t b, const Call& call) {
  Call launched = call;
  if (!gather_) {
    launched.nonfinite = group_.nonfinite()->check_for(call.dtype);
    return group_.start(launched);
  }
  launched.stream = stream_.get();
  launched.tag = static_cast<uint64_t>(gather_->check());
  if (gather_->check() != NonFiniteCheck::kOff)
    std::snprintf(launched.note, sizeof launched.note, "bucket %zu, non-finite check %d", b,
                  static_cast<int>(gather_->check()));
  Filling filling{.scale = divides() ? 1.0 / divisor_ : 1, .divisor = divides() ? divisor_ : 1};
  if (dtype_bytes(call.dtype) == 1) filling.scale *= std::exchange(launched.prescale, 1);
  gather_->fill(b, filling);
  auto work = group_.start(launched);
  gather_->set_work(b, work);
  return work;
}

// Returns the result of an operation. On a device, an operation that is still running counts as successful.
Failure GradientStorage::outcome(Work& work) const {
  if (!gather_) return space_->await_work(work, nullptr);
  Failure failure = work.failure();
  if (failure.code == DSC_IN_PROGRESS) failure.code = DSC_OK;
  return failure;
}

std::optional<BadBucket> GradientStorage::find_nonfinite() {
  return gather_ ? gather_->find_nonfinite() : std::nullopt;
}

void GradientStorage::deliver(Work* work, std::span<const Delivery> deliveries) {
  if (work && gather_) work->wait_on(stream_.get(), Deadline::never());
  copy_slots(deliveries);
}

// Copies results to the memory of the gradients. On a device, one launch handles all gradients with the same
// pair of types. It uses offsets from the start of the memory of all buckets, which are multiples of the
// element size.
void GradientStorage::copy_slots(std::span<const Delivery> deliveries) {
  if (!gather_) {
    for (const auto& [slot, to] : deliveries)
      space_->copy({to, slot->gradient_dtype, slot->view, slot->dtype, slot->count}, nullptr);
    return;
  }
  std::map<std::pair<int32_t, int32_t>, std::vector<TensorPart>> launches;
  for (const auto& [slot, to] : deliveries)
    launches[{slot->gradient_dtype, slot->dtype}].push_back(
        {to, slot->count, static_cast<size_t>(slot->view - arena_.get()) / dtype_bytes(slot->dtype)});
  for (const auto& [types, parts] : launches)
    space_->scatter(
        {.parts = parts, .tensor_dtype = types.first, .block = arena_.get(), .block_dtype = types.second},
        stream_.get());
}

void GradientStorage::end(void* stream) {
  if (gather_) gather_->end();
  end_stream_ = stream;
  space_->order(stream_.get(), end_stream_);
}

// Computes the norm of this rank's part. If waiting for the device fails, this rank revokes the group.
// Otherwise the other ranks would keep waiting for this rank's part of the norm.
Norm GradientStorage::norm(std::span<const Elements> parts) {
  if (space_->is_captured(end_stream_))
    fail(DSC_ERR_STATE,
         "the stream of dsc_bucket_reducer_finish() is being captured in a graph, expected another stream: "
         "the host reads the "
         "norm");
  space_->order(end_stream_, stream_.get());
  Norm found;
  capture([&] { found = space_->norm(parts, stream_.get(), "the gradients"); },
          [&](const Error& error) {
            Failure cause = error.failure();
            if (cause.ranks.empty()) cause.ranks = {group_.rank()};
            group_.revoke(cause);
            throw Error(error);
          });
  // After a failure of the group, the stream continues although the buckets hold no results. The norm is then
  // invalid.
  if (group_.revoked()) throw Error(group_.failure());
  return found;
}

void GradientStorage::scale(std::span<const GradientSlot> slots, std::span<void* const> copies,
                            double factor) {
  std::map<int32_t, std::vector<TensorPart>> launches;
  std::vector<Delivery> deliveries;
  for (size_t i = 0; i < slots.size(); ++i) {
    const GradientSlot& slot = slots[i];
    if (slot.count == 0) continue;
    launches[slot.dtype].push_back(
        {slot.view, slot.count, static_cast<size_t>(slot.view - arena_.get()) / dtype_bytes(slot.dtype)});
    if (copies[i]) deliveries.push_back({&slot, copies[i]});
  }
  for (const auto& [dtype, parts] : launches)
    space_->gather(
        {.parts = parts, .tensor_dtype = dtype, .block = arena_.get(), .block_dtype = dtype, .scale = factor},
        stream_.get());
  copy_slots(deliveries);
  space_->order(stream_.get(), end_stream_);
}

void GradientStorage::keep() noexcept {
  dsc::keep(std::move(arena_));
  if (gather_) gather_->keep();
}

}  // namespace dsc
