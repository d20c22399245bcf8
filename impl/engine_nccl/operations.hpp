// Translation of operations to calls of NCCL.
#pragma once

#include <map>
#include <optional>
#include <span>

#include "control/call.hpp"
#include "engine_nccl/communicator.hpp"

namespace dsc {

// Returns why NCCL cannot run an operation here, as a text that follows the operation's name; nullopt if NCCL
// can run it.
std::optional<std::string> unsupported_reason(const NcclContext& context, const Call& call);

// Throws INVALID_ARG for a reduction with unaligned buffers, because an unaligned access on the device makes
// CUDA unusable for the process. The sizes are those of this rank's buffers, in bytes.
void check_aligned(const Call& call, size_t send_bytes, size_t recv_bytes);

// Puts operations on streams, for one communicator.
class NcclOperations {
 public:
  NcclOperations(std::shared_ptr<NcclCommunicator> communicator, int rank, int ranks)
      : communicator_(std::move(communicator)), rank_(rank), ranks_(ranks) {}
  NcclOperations(const NcclOperations&) = delete;
  NcclOperations& operator=(const NcclOperations&) = delete;

  // Puts all calls on a stream in one group of NCCL, so that messages do not wait for each other. After an
  // error none of the calls runs.
  void enqueue(std::span<const Call> calls, CudaStream* stream, const NcclWait& limits);

  NcclCommunicator& communicator() const noexcept { return *communicator_; }

 private:
  void put_group(NcclComm* comm, std::span<const Call> calls, CudaStream* stream);
  void put(NcclComm* comm, const Call& call, CudaStream* stream);
  void put_reduction(NcclComm* comm, const Call& call, CudaStream* stream);
  void put_blocks(NcclComm* comm, const Call& call, CudaStream* stream);
  void put_lists(NcclComm* comm, const Call& call, CudaStream* stream);
  void send(const void* data, size_t bytes, int peer, NcclComm* comm, CudaStream* stream);
  void receive(void* data, size_t bytes, int peer, NcclComm* comm, CudaStream* stream);
  NcclOp op_of(NcclComm* comm, const Call& call);

  const std::shared_ptr<NcclCommunicator> communicator_;
  const int rank_;
  const int ranks_;
  std::map<std::pair<double, int32_t>, NcclOp> scales_;  // by factor and type; at most a few
};

}  // namespace dsc
