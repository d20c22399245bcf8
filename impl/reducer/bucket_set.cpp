#include "reducer/bucket_set.hpp"

#include <cstdio>
#include <utility>

#include "dtype/dtype.hpp"

namespace dsc {
namespace {

int32_t reduce_op(int32_t average) { return average == DSC_AVERAGE_POST ? DSC_OP_AVG : DSC_OP_SUM; }

Call call_of(const BucketLayout::Bucket& bucket, std::byte* memory, int32_t average, size_t number) {
  Call call;
  call.kind = OpKind::kAllReduce;
  call.dtype = bucket.dtype;
  call.op = reduce_op(average);
  call.recv = memory;
  call.send = memory;
  call.count = bucket.count;
  std::snprintf(call.note, sizeof call.note, "bucket %zu", number);
  return call;
}

}  // namespace

BucketSet::BucketSet(Comm& group, const ParamList& params, BucketLayout chosen, int32_t average)
    : layout(std::move(chosen)),
      average(average),
      storage(std::make_unique<GradientStorage>(group, params.tensors[0].device >= 0,
                                                StorageOptions{average, layout.buckets, layout.bytes})) {
  for (size_t i = 0; i < params.size(); ++i) {
    const Tensor& param = params.tensors[i];
    slots.push_back({storage->arena() + layout.param_offsets[i], param.count, param.bytes(),
                     layout.param_buckets[i], param.dtype, params.gradient_dtypes[i]});
  }
  for (size_t b = 0; b < size(); ++b) calls.push_back(call_of(layout.buckets[b], bucket(b), average, b));
  set_divisor(group.size());
}

size_t BucketSet::bucket_bytes(size_t b) const {
  return layout.buckets[b].count * dtype_bytes(layout.buckets[b].dtype);
}

void BucketSet::set_divisor(int divisor) {
  storage->set_divisor(divisor);
  if (average != DSC_AVERAGE_PRE) return;
  for (Call& call : calls) call.prescale = 1.0 / divisor;
}

}  // namespace dsc
