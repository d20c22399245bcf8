#include "reducer/device_norm.hpp"

#include <map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/device_wait.hpp"
#include "device/buffer.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

// Lists for one launch each, by the types of the tensors and of the buckets. Views of each type lie at
// multiples of its size from the start of the arena.
using Launches = std::map<std::pair<int32_t, int32_t>, std::vector<BucketPart>>;

BucketPart part_of(DeviceAddress arena, const GradientPart& part, DeviceAddress tensor) {
  const size_t bytes = dtype_bytes(part.slot->dtype);
  return {tensor, part.count, (address_of(part.slot->view) - arena) / bytes + part.at};
}

BucketPart in_place(DeviceAddress arena, const GradientPart& part) {
  return part_of(arena, part, address_of(part.slot->view) + part.at * dtype_bytes(part.slot->dtype));
}

BucketCopy copy_of(const Launches::value_type& launch, DeviceAddress arena) {
  return {.parts = launch.second,
          .tensor_dtype = launch.first.first,
          .bucket = arena,
          .bucket_dtype = launch.first.second};
}

}  // namespace

GradientNorm device_norm(Comm& group, DeviceStream* stream, DeviceAddress arena,
                         std::span<const GradientPart> parts) {
  const DeviceContext& context = *group.device_context();
  const DeviceScope scope(*context.device);
  const DeviceBuffer state(*context.device, Kernels::norm_bytes(), stream);
  context.device->zero(state.address(), Kernels::norm_bytes(), stream);
  Launches launches;
  for (const GradientPart& part : parts)
    launches[{part.slot->dtype, part.slot->dtype}].push_back(in_place(arena, part));
  for (const auto& launch : launches) {
    BucketCopy copy = copy_of(launch, arena);
    copy.norm = state.address();
    context.kernels->get().gather(copy, stream);
  }
  Kernels::NormResult found{};
  capture([&] { read_device(group, &found, state.address(), sizeof found, stream, "the gradients"); },
          [&](const Error& error) {
            Failure cause = error.failure();
            if (cause.ranks.empty()) cause.ranks = {group.rank()};
            group.revoke(cause);
            throw Error(error);
          });
  if (group.revoked()) throw Error(group.failure());  // which has freed the stream
  return {found.squared, found.nonfinite > 0 ? found.squared : found.most};
}

void device_scale(const DeviceContext& context, DeviceStream* stream, DeviceAddress arena,
                  std::span<const GradientSlot> slots, std::span<void* const> copies, double factor) {
  const DeviceScope scope(*context.device);
  Launches scaled, copied;
  for (size_t i = 0; i < slots.size(); ++i) {
    const GradientSlot& slot = slots[i];
    if (slot.count == 0) continue;
    const GradientPart whole{&slot, 0, slot.count};
    scaled[{slot.dtype, slot.dtype}].push_back(in_place(arena, whole));
    if (copies[i])
      copied[{slot.gradient_dtype, slot.dtype}].push_back(part_of(arena, whole, address_of(copies[i])));
  }
  for (const auto& launch : scaled) {
    BucketCopy copy = copy_of(launch, arena);
    copy.scale = factor;
    context.kernels->get().gather(copy, stream);
  }
  for (const auto& launch : copied) context.kernels->get().scatter(copy_of(launch, arena), stream);
}

}  // namespace dsc
