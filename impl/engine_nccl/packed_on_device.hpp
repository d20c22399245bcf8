// Calls on a device whose blocks are columns of a matrix. NCCL moves contiguous blocks, so kernels pack them
// before and unpack them after an operation, in the order of its stream.
#pragma once

#include <optional>

#include "comm/transfer.hpp"
#include "control/call.hpp"
#include "device/buffer.hpp"
#include "device/kernels.hpp"

namespace dsc {

class PackedOnDevice {
 public:
  // Packs the send buffer on the stream if it has columns. The device's context must be current.
  PackedOnDevice(const Device& device, const Kernels& kernels, const Call& call, int rank, int size,
                 CudaStream* stream);

  // Returns the same call, with contiguous blocks.
  const Call& call() const noexcept { return call_; }
  // Writes the received blocks to the columns of the recv buffer, on the same stream.
  void unpack() const;

 private:
  void copy(CudaAddress from, CudaAddress to, const Rows& from_rows, const Rows& to_rows, size_t count) const;

  const Call unpacked_;
  const Transfer transfer_;  // refers to unpacked_
  const Kernels& kernels_;
  CudaStream* const stream_;
  std::optional<DeviceBuffer> send_, recv_;
  Call call_;
};

}  // namespace dsc
