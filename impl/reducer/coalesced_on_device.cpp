#include "reducer/coalesced_on_device.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "device/buffer.hpp"
#include "device/context.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

constexpr size_t kAlignment = 16;  // in bytes; the kernels are fast at such addresses

DeviceAddress address(const void* memory) { return reinterpret_cast<DeviceAddress>(memory); }

// Packs tensors, runs the operation on them and unpacks them, one plan bucket after the other.
class DeviceList {
 public:
  DeviceList(Comm& comm, std::span<const Tensor> tensors, const ListOperation& operation)
      : context_(*comm.device_context()),
        comm_(comm),
        tensors_(tensors),
        operation_(operation),
        kernels_(context_.kernels->get()),
        stream_(context_.device, 0) {
    order(*context_.device, *context_.events, nullptr, stream_.get());
  }

  void run(std::span<const size_t> indices) {
    const DeviceScope scope(*context_.device);
    if (indices.size() == 1) {
      const Tensor& only = tensors_[indices[0]];
      if (needs_zeros()) context_.device->zero(address(only.data), only.bytes(), stream_.get());
      return start(indices, only.data, only.count);
    }
    const size_t count = lay_out(indices);
    const DeviceBuffer buffer(*context_.device, std::max<size_t>(count * element_bytes(indices), 1),
                              stream_.get());
    const BucketCopy copy{.parts = parts_,
                          .tensor_dtype = tensors_[indices[0]].dtype,
                          .bucket = buffer.address(),
                          .bucket_dtype = tensors_[indices[0]].dtype};
    if (operation_.is_callers)  // what lies between the parts is reduced, too
      context_.device->zero(buffer.address(), count * element_bytes(indices), stream_.get());
    if (operation_.sends) kernels_.gather(copy, stream_.get());
    if (needs_zeros()) context_.device->zero(buffer.address(), count * element_bytes(indices), stream_.get());
    start(indices, buffer.data(), count);
    works_.back()->wait_on(stream_.get(), Deadline::never());
    if (operation_.receives) kernels_.scatter(copy, stream_.get());
  }

  // Waits for all operations, each of which has its own deadline, and then for the copies behind them,
  // which write also if an operation has failed.
  void finish() {
    std::optional<Error> failed;
    for (const auto& work : works_)
      capture([&] { work->wait(Deadline::never()); },
              [&](const Error& error) {
                if (!failed) failed.emplace(error);
              });
    const bool over =
        wait_for(*context_.device, *context_.events, stream_.get(), Deadline::after_ms(comm_.timeout_ms()));
    if (failed) throw Error(*failed);
    if (!over)
      fail(DSC_ERR_TIMEOUT, "copies on device %d were not over after %d ms", comm_.device(),
           comm_.timeout_ms());
  }

 private:
  bool needs_zeros() const noexcept {
    return !operation_.sends && operation_.call.kind == OpKind::kAllReduce;
  }

  size_t element_bytes(std::span<const size_t> indices) const {
    return dtype_bytes(tensors_[indices[0]].dtype);
  }

  // Assigns each tensor its part of the buffer; returns the buffer's length in elements.
  size_t lay_out(std::span<const size_t> indices) {
    const size_t step = kAlignment / element_bytes(indices);
    size_t end = 0;
    parts_.clear();
    for (const size_t index : indices) {
      const size_t at = (end + step - 1) / step * step;
      parts_.push_back({address(tensors_[index].data), tensors_[index].count, at});
      end = at + tensors_[index].count;
    }
    return end;
  }

  void start(std::span<const size_t> indices, void* memory, size_t count) {
    Call call = operation_.on_buffer(comm_, tensors_, indices, memory, count);
    call.stream = stream_.get();
    works_.push_back(comm_.start(call));
  }

  const DeviceContext context_;
  Comm& comm_;
  const std::span<const Tensor> tensors_;
  const ListOperation& operation_;
  const Kernels& kernels_;
  Stream stream_;
  std::vector<BucketPart> parts_;
  std::vector<std::shared_ptr<Work>> works_;
};

}  // namespace

void run_list_on_device(Comm& comm, std::span<const Tensor> tensors, const BucketPlan& plan,
                        const ListOperation& operation) {
  DeviceList list(comm, tensors, operation);
  for (size_t b = 0; b < plan.buckets(); ++b) list.run(plan.bucket(b));
  list.finish();
}

}  // namespace dsc
