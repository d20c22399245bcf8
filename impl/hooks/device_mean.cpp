#include "hooks/device_mean.hpp"

#include <cstdio>

#include "device/context.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

DeviceStream* stream_of(const HookBucket& bucket) { return static_cast<DeviceStream*>(bucket.stream); }
DeviceAddress address_of(const HookBucket& bucket) { return reinterpret_cast<DeviceAddress>(bucket.buffer); }

// The elements are converted first and then divided in the type that is sent, as on the host and in PyTorch's
// hooks.
std::unique_ptr<DeviceBuffer> narrowed(const HookBucket& bucket, int32_t dtype) {
  const DeviceContext& context = *bucket.group.device_context();
  const Kernels& kernels = context.kernels->get();
  auto narrow =
      std::make_unique<DeviceBuffer>(*context.device, bucket.count * dtype_bytes(dtype), stream_of(bucket));
  kernels.copy({.from = address_of(bucket),
                .to = narrow->address(),
                .count = bucket.count,
                .from_dtype = bucket.dtype,
                .to_dtype = dtype},
               stream_of(bucket));
  if (bucket.divisor != 1)
    kernels.sum_parts({.from = narrow->address(),
                       .to = narrow->address(),
                       .count = bucket.count,
                       .n_parts = 1,
                       .dtype = dtype,
                       .divisor = static_cast<double>(bucket.divisor)},
                      stream_of(bucket));
  return narrow;
}

// The device's engine cannot scale floats of 8 bits.
void scale_in_place(const HookBucket& bucket, double scale) {
  bucket.group.device_context()->kernels->get().copy({.from = address_of(bucket),
                                                      .to = address_of(bucket),
                                                      .count = bucket.count,
                                                      .from_dtype = bucket.dtype,
                                                      .to_dtype = bucket.dtype,
                                                      .scale = scale},
                                                     stream_of(bucket));
}

}  // namespace

std::shared_ptr<Work> DeviceMean::start(const HookBucket& bucket, int32_t wire_dtype,
                                        const std::string& hook) {
  const DeviceScope scope(*bucket.group.device_context()->device);
  Call call;
  call.kind = OpKind::kAllReduce;
  call.dtype = wire_dtype_ = wire_dtype;
  call.op = DSC_OP_SUM;
  call.recv = bucket.buffer;
  call.count = bucket.count;
  call.stream = bucket.stream;
  std::snprintf(call.note, sizeof call.note, "bucket %zu, %s", bucket.index, hook.c_str());
  if (wire_dtype != bucket.dtype) {
    narrow_ = narrowed(bucket, wire_dtype);
    call.recv = narrow_->data();
  } else if (dtype_bytes(bucket.dtype) == 1) {
    scale_in_place(bucket, 1.0 / bucket.divisor);
  } else {
    call.prescale = 1.0 / bucket.divisor;
  }
  call.send = call.recv;
  return bucket.group.start(call);
}

void DeviceMean::finish(const HookBucket& bucket) {
  if (!narrow_) return;
  const DeviceContext& context = *bucket.group.device_context();
  const DeviceScope scope(*context.device);
  context.kernels->get().copy({.from = narrow_->address(),
                               .to = address_of(bucket),
                               .count = bucket.count,
                               .from_dtype = wire_dtype_,
                               .to_dtype = bucket.dtype},
                              stream_of(bucket));
  narrow_.reset();
}

}  // namespace dsc
