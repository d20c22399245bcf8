// Sends only the elements of largest magnitude on every rank. With error feedback, elements that were not
// sent are added to the next gradients (Aji and Heafield 2017; Lin et al. 2018).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "compress/topk.hpp"
#include "dtype/reduce.hpp"
#include "hooks/builtin.hpp"
#include "hooks/state.hpp"

namespace dsc {
namespace {

constexpr std::array kTopKOptions{
    HookOption{"ratio", "0.01", 1e-6, 1, false, "fraction of the elements that each rank sends"},
    HookOption{"error_feedback", "1", 0, 1, true,
               "1: elements that were not sent are added in the next iteration"},
};

class TopKHook final : public BucketHook {
 public:
  TopKHook(const HookMaking& making, const HookOptions& options)
      : name_(making.name),
        wire_dtype_(making.wire_dtype == 0 ? DSC_DTYPE_F32 : making.wire_dtype),
        ratio_(options.number("ratio")),
        error_feedback_(options.flag("error_feedback")) {}

  const std::string& name() const noexcept override { return name_; }

  void prepare(std::span<const Tensor> params) override {
    expect_f32(name_, params);
    buckets_.clear();
  }

  std::shared_ptr<Work> step(const HookBucket& bucket, int step) override {
    if (buckets_.size() <= bucket.index) buckets_.resize(bucket.index + 1);
    Bucket& own = buckets_[bucket.index];
    if (bucket.count == 0) return nullptr;
    if (own.layout == 0) own.layout = layout_of(bucket);
    if (step == 0) return send(bucket, own);
    receive(bucket, own);
    return nullptr;
  }

  std::string save() const override {
    StateWriter writer(name_);
    writer.number(buckets_.size());
    for (const Bucket& bucket : buckets_) {
      writer.number(bucket.layout);
      writer.floats(bucket.error);
    }
    return writer.take();
  }

  void load(std::span<const std::byte> state, std::span<const HookBucket> buckets) override {
    StateReader reader(state, name_);
    std::vector<Bucket> loaded(reader.items());
    for (Bucket& bucket : loaded) {
      bucket.layout = reader.number();
      bucket.error = reader.floats();
    }
    reader.end();
    expect_buckets(name_, loaded.size(), buckets.size());
    for (size_t b = 0; b < loaded.size(); ++b) expect_layout(name_, loaded[b].layout, buckets[b]);
    for (size_t b = 0; b < loaded.size(); ++b)
      if (!loaded[b].error.empty()) expect_errors(loaded[b], buckets[b]);
    buckets_ = std::move(loaded);
  }

 private:
  struct Bucket {
    uint64_t layout = 0;  // the value of layout_of() for this bucket
    std::vector<float> error;
    std::vector<uint32_t> indices;
    std::vector<std::byte> sent;
    std::vector<std::byte> received;
  };

  size_t chosen(size_t count) const {
    return std::max<size_t>(1, static_cast<size_t>(ratio_ * static_cast<double>(count)));
  }
  size_t message_bytes(size_t k) const { return k * (sizeof(uint32_t) + dtype_bytes(wire_dtype_)); }

  void add_error(const HookBucket& bucket, Bucket& own) const {
    own.error.resize(own.error.empty() ? bucket.count : own.error.size());
    expect_errors(own, bucket);
    add(DSC_DTYPE_F32, own.error.data(), bucket.buffer, bucket.count);
  }

  void expect_errors(const Bucket& own, const HookBucket& bucket) const {
    if (own.error.size() != bucket.count)
      fail(DSC_ERR_INVALID_ARG,
           "the loaded state of hook %s has %zu error values for bucket %zu, expected %zu: it was saved with "
           "other parameters or other buckets",
           name_.c_str(), own.error.size(), bucket.index, bucket.count);
  }

  std::shared_ptr<Work> send(const HookBucket& bucket, Bucket& own) const {
    if (!error_feedback_) own.error.clear();
    add_error(bucket, own);
    const size_t k = chosen(bucket.count);
    own.indices.resize(k);
    select_top_k(own.error, own.indices);
    std::vector<float> values(k);
    for (size_t i = 0; i < k; ++i) values[i] = own.error[own.indices[i]];
    own.sent.resize(message_bytes(k));
    own.received.resize(own.sent.size() * static_cast<size_t>(bucket.group.size()));
    std::memcpy(own.sent.data(), own.indices.data(), k * sizeof(uint32_t));
    std::byte* const at = own.sent.data() + k * sizeof(uint32_t);
    cast(wire_dtype_, at, DSC_DTYPE_F32, values.data(), k);
    keep_rest(own, values, at);
    Call call = call_of_bytes(OpKind::kAllGather, -1, own.sent.data(), own.received.data(), own.sent.size());
    std::snprintf(call.note, sizeof call.note, "bucket %zu, %s", bucket.index, name_.c_str());
    return bucket.group.start(call);
  }

  // Keeps in the error what was not sent, including the rounding error of the type that is sent. A NaN or
  // infinity is not kept. If there is one, it was among the elements that were sent.
  void keep_rest(Bucket& own, std::vector<float>& values, const std::byte* sent) const {
    const std::vector<float> exact = values;
    cast(DSC_DTYPE_F32, values.data(), wire_dtype_, sent, values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const float rest = std::isfinite(values[i]) ? exact[i] - values[i] : 0;
      own.error[own.indices[i]] = rest;
    }
    if (std::ranges::all_of(exact, [](float value) { return std::isfinite(value); })) return;
    for (float& value : own.error)
      if (!std::isfinite(value)) value = 0;
  }

  void receive(const HookBucket& bucket, Bucket& own) const {
    const size_t k = chosen(bucket.count);
    auto* out = reinterpret_cast<float*>(bucket.buffer);
    std::fill_n(out, bucket.count, 0.0F);
    std::vector<uint32_t> indices(k);
    std::vector<float> values(k);
    for (int rank = 0; rank < bucket.group.size(); ++rank) {
      const std::byte* const message = own.received.data() + static_cast<size_t>(rank) * own.sent.size();
      std::memcpy(indices.data(), message, k * sizeof(uint32_t));
      cast(DSC_DTYPE_F32, values.data(), wire_dtype_, message + k * sizeof(uint32_t), k);
      for (size_t i = 0; i < k; ++i) out[indices[i] % bucket.count] += values[i];
    }
    divide(DSC_DTYPE_F32, out, out, bucket.count, bucket.divisor);
  }

  const std::string name_;
  const int32_t wire_dtype_;
  const double ratio_;
  const bool error_feedback_;
  std::vector<Bucket> buckets_;
};

}  // namespace

std::span<const HookOption> topk_options() { return kTopKOptions; }

std::shared_ptr<BucketHook> make_topk_hook(const HookMaking& making, const HookOptions& options) {
  return std::make_shared<TopKHook>(making, options);
}

}  // namespace dsc
