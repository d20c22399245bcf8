// Computes the mean by an all-reduce, in the buckets' type or in a 16-bit type. Corresponds to PyTorch's
// allreduce_hook, fp16_compress_hook and bf16_compress_hook.
#include <cstdio>
#include <vector>

#include "base/error.hpp"
#include "dtype/dtype.hpp"
#include "hooks/builtin.hpp"
#include "hooks/wire.hpp"

namespace dsc {
namespace {

class MeanHook final : public BucketHook {
 public:
  explicit MeanHook(const HookMaking& making) : name_(making.name), wire_dtype_(making.wire_dtype) {}

  const std::string& name() const noexcept override { return name_; }

  void prepare(std::span<const Tensor> params) override {
    if (wire_dtype_ != 0) {
      expect_f32(name_, params);
    } else {
      for (size_t i = 0; i < params.size(); ++i)
        if (!is_floating(params[i].dtype))
          fail(DSC_ERR_UNSUPPORTED, "hook %s: %s has gradients of %s, expected floats", name_.c_str(),
               label(params[i].name, i).c_str(), dtype_name(params[i].dtype));
    }
    sums_.clear();
  }

  std::shared_ptr<Work> step(const HookBucket& bucket, int step) override {
    if (sums_.size() <= bucket.index) sums_.resize(bucket.index + 1);
    WireSum& sum = sums_[bucket.index];
    if (step > 0) {
      sum.finish();
      return nullptr;
    }
    char note[40];
    std::snprintf(note, sizeof note, "bucket %zu, %s", bucket.index, name_.c_str());
    sum.start({bucket.group, bucket.space, bucket.stream, bucket.elements(),
               wire_dtype_ == 0 ? bucket.dtype : wire_dtype_, bucket.divisor},
              note);
    return sum.work();
  }

 private:
  const std::string name_;
  const int32_t wire_dtype_;
  std::vector<WireSum> sums_;  // one sum per bucket
};

}  // namespace

std::shared_ptr<BucketHook> make_mean_hook(const HookMaking& making) {
  return std::make_shared<MeanHook>(making);
}

void expect_f32(const std::string& hook, std::span<const Tensor> params) {
  for (size_t i = 0; i < params.size(); ++i) {
    if (params[i].expect_sparse == 1) continue;  // hooks do not see sparse gradients
    if (params[i].dtype != DSC_DTYPE_F32)
      fail(DSC_ERR_UNSUPPORTED,
           "hook %s works on gradients of f32, and %s has %s; grad_dtype can make them f32", hook.c_str(),
           label(params[i].name, i).c_str(), dtype_name(params[i].dtype));
  }
}

}  // namespace dsc
