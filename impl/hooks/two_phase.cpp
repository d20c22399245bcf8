#include "hooks/two_phase.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "hooks/state.hpp"

namespace dsc {
namespace {

class TwoPhaseHook final : public BucketHook {
 public:
  TwoPhaseHook(std::string name, std::unique_ptr<Codec> codec, bool error_feedback)
      : name_(std::move(name)), codec_(std::move(codec)), error_feedback_(error_feedback) {}

  const std::string& name() const noexcept override { return name_; }

  void prepare(std::span<const Tensor> params) override {
    expect_f32(name_, params);
    buckets_.clear();
  }

  std::shared_ptr<Work> step(const HookBucket& bucket, int step) override {
    if (buckets_.size() <= bucket.index) buckets_.resize(bucket.index + 1);
    Bucket& own = buckets_[bucket.index];
    if (own.layout == 0) own.layout = layout_of(bucket);
    if (step == 0) return scatter(bucket, own);
    if (step == 1) return gather(bucket, own);
    receive(bucket, own);
    return nullptr;
  }

  std::string save() const override;
  void load(std::span<const std::byte> state, std::span<const HookBucket> buckets) override;

 private:
  struct Bucket {
    uint64_t layout = 0;              // the value of layout_of() for this bucket
    size_t chunk = 0;                 // number of elements in a chunk
    std::vector<float> values;        // the gradients, padded with zeros
    std::vector<float> sum;           // sum over all ranks of the chunk that this rank owns
    std::vector<float> worker_error;  // error of the data that this rank sends
    std::vector<float> server_error;  // error of the mean that this rank encodes
    std::vector<std::byte> sent;
    std::vector<std::byte> received;
  };

  void set_up(const HookBucket& bucket, Bucket& own) const;
  std::shared_ptr<Work> scatter(const HookBucket& bucket, Bucket& own) const;
  std::shared_ptr<Work> gather(const HookBucket& bucket, Bucket& own) const;
  void receive(const HookBucket& bucket, Bucket& own) const;
  std::shared_ptr<Work> start(const HookBucket& bucket, OpKind kind, Bucket& own) const;

  const std::string name_;
  const std::unique_ptr<Codec> codec_;
  const bool error_feedback_;
  std::vector<Bucket> buckets_;
};

void TwoPhaseHook::set_up(const HookBucket& bucket, Bucket& own) const {
  const auto ranks = static_cast<size_t>(bucket.group.size());
  const size_t unit = codec_->alignment(ranks);
  own.chunk = (bucket.count + ranks * unit - 1) / (ranks * unit) * unit;
  own.values.assign(own.chunk * ranks, 0);
  own.sum.resize(own.chunk);
  own.sent.resize(codec_->bytes(own.chunk) * ranks);
  own.received.resize(own.sent.size());
  if (!error_feedback_) return;
  if (own.worker_error.empty()) {
    own.worker_error.resize(own.values.size());
    own.server_error.resize(own.chunk);
  }
  if (own.worker_error.size() != own.values.size() || own.server_error.size() != own.chunk)
    fail(DSC_ERR_INVALID_ARG,
         "the loaded state of hook %s has %zu worker errors and %zu server errors for bucket %zu, expected "
         "%zu and %zu: it was saved with other parameters, other buckets or another number of ranks",
         name_.c_str(), own.worker_error.size(), own.server_error.size(), bucket.index, own.values.size(),
         own.chunk);
}

std::shared_ptr<Work> TwoPhaseHook::start(const HookBucket& bucket, OpKind kind, Bucket& own) const {
  Call call = call_of_bytes(kind, -1, own.sent.data(), own.received.data(), codec_->bytes(own.chunk));
  std::snprintf(call.note, sizeof call.note, "bucket %zu, %s", bucket.index, name_.c_str());
  return bucket.group.start(call);
}

std::shared_ptr<Work> TwoPhaseHook::scatter(const HookBucket& bucket, Bucket& own) const {
  if (own.chunk == 0) set_up(bucket, own);
  if (bucket.count > 0) std::memcpy(own.values.data(), bucket.buffer, bucket.count * sizeof(float));
  codec_->encode(own.values, own.worker_error, static_cast<size_t>(bucket.group.size()), own.sent);
  return start(bucket, OpKind::kAllToAll, own);
}

std::shared_ptr<Work> TwoPhaseHook::gather(const HookBucket& bucket, Bucket& own) const {
  const std::span<const std::byte> received(own.received);
  const size_t bytes = codec_->bytes(own.chunk);
  for (int rank = 0; rank < bucket.group.size(); ++rank)
    codec_->decode(received.subspan(static_cast<size_t>(rank) * bytes, bytes), own.sum, rank > 0);
  for (float& value : own.sum) value /= static_cast<float>(bucket.divisor);
  codec_->encode(own.sum, own.server_error, 1, std::span(own.sent).first(bytes));
  return start(bucket, OpKind::kAllGather, own);
}

void TwoPhaseHook::receive(const HookBucket& bucket, Bucket& own) const {
  const size_t bytes = codec_->bytes(own.chunk);
  auto* out = reinterpret_cast<float*>(bucket.buffer);
  for (size_t rank = 0, at = 0; at < bucket.count; ++rank, at += own.chunk) {
    const std::span<const std::byte> chunk = std::span(own.received).subspan(rank * bytes, bytes);
    if (bucket.count - at >= own.chunk) {
      codec_->decode(chunk, {out + at, own.chunk}, false);
    } else {
      codec_->decode(chunk, own.sum, false);
      std::memcpy(out + at, own.sum.data(), (bucket.count - at) * sizeof(float));
    }
  }
}

std::string TwoPhaseHook::save() const {
  StateWriter writer(name_);
  writer.number(buckets_.size());
  for (const Bucket& bucket : buckets_) {
    writer.number(bucket.layout);
    writer.floats(bucket.worker_error);
    writer.floats(bucket.server_error);
  }
  return writer.take();
}

void TwoPhaseHook::load(std::span<const std::byte> state, std::span<const HookBucket> buckets) {
  StateReader reader(state, name_);
  std::vector<Bucket> loaded(reader.items());
  for (Bucket& bucket : loaded) {
    bucket.layout = reader.number();
    bucket.worker_error = reader.floats();
    bucket.server_error = reader.floats();
  }
  reader.end();
  expect_buckets(name_, loaded.size(), buckets.size());
  for (size_t b = 0; b < loaded.size(); ++b) expect_layout(name_, loaded[b].layout, buckets[b]);
  for (size_t b = 0; b < loaded.size(); ++b)
    if (!loaded[b].worker_error.empty()) set_up(buckets[b], loaded[b]);
  buckets_ = std::move(loaded);
}

}  // namespace

std::shared_ptr<BucketHook> make_two_phase_hook(const std::string& name, std::unique_ptr<Codec> codec,
                                                bool error_feedback) {
  return std::make_shared<TwoPhaseHook>(name, std::move(codec), error_feedback);
}

}  // namespace dsc
