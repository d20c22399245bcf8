#include "engine_nccl/device_collectives.hpp"

#include <algorithm>

#include "comm/transfer.hpp"

namespace dsc {

DeviceCollectives::DeviceCollectives(const NcclGroup& group, const NcclEnding& ending)
    : group_(group), ending_(ending), stream_(group.world.nccl.device, group.stream_priority) {
  if (group.communicator) operations_.emplace(group.communicator, group.host->rank(), group.host->size());
}

void DeviceCollectives::copy_locally(const Call& call, CudaStream* stream) const {
  if (call.send == call.recv || !call.send || !call.recv) return;
  const Transfer transfer(call, 0, 1);
  group_.device().copy(address_of(call.recv), address_of(call.send), transfer.send_bytes, stream);
}

bool DeviceCollectives::is_plain(const Call& call) const noexcept {
  if (call.steps || !operations_) return !call.steps;
  return call.kind != OpKind::kBarrier && !call.columns &&
         (call.kind != OpKind::kAllToAll || call.send != call.recv);
}

// A barrier is the sum of one word of each rank. An all-to-all in place first copies its input, because it
// would otherwise overwrite data that is not sent yet.
void DeviceCollectives::make_plain(Call& call, Copies& copies, CudaStream* stream) const {
  if (call.steps) {
    copies.steps.push_back(call.steps->begin(call, stream));
    return;
  }
  if (is_plain(call)) return;
  const Device& device = group_.device();
  if (call.kind == OpKind::kBarrier) {
    call.kind = OpKind::kAllReduce;
    call.send = call.recv = group_.world.barrier_word->data();
    call.count = 1;
    call.dtype = DSC_DTYPE_U8;
    call.op = DSC_OP_MAX;
    return;
  }
  const Transfer transfer(call, group_.host->rank(), group_.host->size());
  if (transfer.pattern == Pattern::kNothing) return;
  if (call.kind == OpKind::kAllToAll && call.send == call.recv) {
    const DeviceBuffer& copy = copies.inputs.emplace_back(device, transfer.send_bytes, stream);
    device.copy(copy.address(), address_of(call.send), transfer.send_bytes, stream);
    call.send = copy.data();
  } else {
    call = copies.packed
               .emplace_back(device, group_.world.gpu.kernels->get(), call, group_.host->rank(),
                             group_.host->size(), stream)
               .call();
  }
}

void DeviceCollectives::put_plain(std::span<const Call> calls, CudaStream* stream) {
  if (operations_) return operations_->enqueue(calls, stream, ending_.wait_limits(calls[0].timeout_ms));
  for (const Call& call : calls) copy_locally(call, stream);
}

void DeviceCollectives::put(std::span<const Call> calls, CudaStream* stream) {
  const Device& device = group_.device();
  const DeviceScope scope(device);
  if (stream == kPerThreadStream) {  // to NCCL's own launch threads this handle means another stream
    order(device, *group_.world.gpu.events, stream, stream_.get());
    put(calls, stream_.get());
    return order(device, *group_.world.gpu.events, stream_.get(), stream);
  }
  if (std::ranges::all_of(calls, [this](const Call& call) { return is_plain(call); }))
    return put_plain(calls, stream);
  std::vector<Call> plain(calls.begin(), calls.end());
  Copies copies;
  for (Call& call : plain) make_plain(call, copies, stream);
  put_plain(plain, stream);
  for (const PackedOnDevice& packed : copies.packed) packed.unpack();
  for (const auto& steps : copies.steps) steps->finish();
}

}  // namespace dsc
