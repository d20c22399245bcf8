// Puts the collectives of one engine on streams, as calls of NCCL.
#pragma once

#include <deque>
#include <optional>
#include <span>

#include "comm/device_steps.hpp"
#include "device/buffer.hpp"
#include "engine_nccl/nccl_ending.hpp"
#include "engine_nccl/operations.hpp"
#include "engine_nccl/packed_on_device.hpp"

namespace dsc {

// NcclEngine owns the object. One thread at a time may use it.
class DeviceCollectives {
 public:
  DeviceCollectives(const NcclGroup& group, const NcclEnding& ending);

  // Puts several operations on a stream as one operation. Throws errors of CUDA and NCCL, the failure that
  // ends the communicator, and TIMEOUT.
  void put(std::span<const Call> calls, CudaStream* stream);
  CudaStream* stream() const noexcept { return stream_.get(); }  // of asynchronous operations

 private:
  // Buffers that the calls of one put() need in addition to NCCL's operations.
  struct Copies {
    std::deque<DeviceBuffer> inputs;
    std::deque<PackedOnDevice> packed;
    std::deque<std::unique_ptr<DeviceSteps::OnStream>> steps;
  };

  // True if the operation is one call of NCCL or, in a group of one rank, a copy.
  bool is_plain(const Call& call) const noexcept;
  void make_plain(Call& call, Copies& copies, CudaStream* stream) const;
  void put_plain(std::span<const Call> calls, CudaStream* stream);
  void copy_locally(const Call& call, CudaStream* stream) const;

  const NcclGroup& group_;
  const NcclEnding& ending_;
  std::optional<NcclOperations> operations_;  // empty in a group of one rank
  Stream stream_;
};

}  // namespace dsc
