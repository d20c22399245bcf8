// The norm of gradients on a device, and scaling of them, by the library's kernels.
#pragma once

#include <span>

#include "comm/comm.hpp"
#include "device/context.hpp"
#include "reducer/storage.hpp"

namespace dsc {

inline DeviceAddress address_of(const void* memory) { return reinterpret_cast<DeviceAddress>(memory); }

// Waits for the stream and returns the norm of gradients in the buckets that begin at `arena`. Throws the
// failure of the group if there is one. A device that does not get there ends the group on all ranks, which
// would wait for this one.
GradientNorm device_norm(Comm& group, DeviceStream* stream, DeviceAddress arena,
                         std::span<const GradientPart> parts);

// Scales gradients in place and writes them to their copies, in the order of the stream.
void device_scale(const DeviceContext& context, DeviceStream* stream, DeviceAddress arena,
                  std::span<const GradientSlot> slots, std::span<void* const> copies, double factor);

}  // namespace dsc
