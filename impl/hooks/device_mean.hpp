// The mean of a bucket in device memory, in the order of the bucket's stream and without waiting for it.
#pragma once

#include <memory>
#include <string>

#include "device/buffer.hpp"
#include "reducer/hook.hpp"

namespace dsc {

class DeviceMean {
 public:
  // wire_dtype: of what is sent; F16 or BF16 for buckets of F32, or the bucket's own type.
  std::shared_ptr<Work> start(const HookBucket& bucket, int32_t wire_dtype, const std::string& hook);
  // Brings the result into the bucket, behind the work.
  void finish(const HookBucket& bucket);

 private:
  int32_t wire_dtype_ = 0;
  std::unique_ptr<DeviceBuffer> narrow_;  // from start() to finish()
};

}  // namespace dsc
