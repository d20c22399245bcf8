#include "engine_nccl/operations.hpp"

#include <cstring>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "dtype/dtype.hpp"
#include "dtype/reduce.hpp"

namespace dsc {
namespace {

constexpr int kFirstFloat8 = 22400;  // NCCL 2.24 and later sum 8-bit floats
constexpr int kFloat8Capability = 90;
constexpr size_t kMostScales = 16;

bool is_float8(int32_t dtype) { return dtype == DSC_DTYPE_F8E4M3 || dtype == DSC_DTYPE_F8E5M2; }

bool is_reduction(OpKind kind) {
  return kind == OpKind::kAllReduce || kind == OpKind::kReduce || kind == OpKind::kReduceScatter ||
         kind == OpKind::kReduceScatterV;
}

// True for operations that are a single call of NCCL. Other operations may need several calls.
bool is_one_call(OpKind kind) {
  return kind == OpKind::kAllReduce || kind == OpKind::kReduce || kind == OpKind::kReduceScatter ||
         kind == OpKind::kBroadcast || kind == OpKind::kAllGather || kind == OpKind::kSend ||
         kind == OpKind::kRecv;
}

// Data that is only moved is sent as bytes, which every version knows and which need no alignment.
constexpr NcclType kMovedAs = NcclType::uint8;

// NCCL has no bool, so it is reduced as a byte that is 0 or 1.
NcclType reduced_as(int32_t dtype) {
  return dtype == DSC_DTYPE_BOOL ? NcclType::uint8 : static_cast<NcclType>(dtype - 1);
}

NcclOp plain_op(const Call& call) {
  if (call.dtype != DSC_DTYPE_BOOL) return static_cast<NcclOp>(call.op - DSC_OP_SUM);
  const bool all = call.op == DSC_OP_PROD || call.op == DSC_OP_MIN || call.op == DSC_OP_BAND;
  return all ? NcclOp::min : NcclOp::max;
}

// A factor as one element of the call's type.
struct Scalar {
  alignas(8) std::byte bytes[8] = {};
};
Scalar scalar_of(double value, int32_t dtype) {
  Scalar scalar;
  if (dtype == DSC_DTYPE_F64) std::memcpy(scalar.bytes, &value, sizeof value);
  const auto single = static_cast<float>(value);
  if (dtype != DSC_DTYPE_F64) cast(dtype, scalar.bytes, DSC_DTYPE_F32, &single, 1);
  return scalar;
}

size_t bytes_of(size_t elements, int32_t dtype) {
  return dtype == 0 ? elements : elements * dtype_bytes(dtype);
}

const std::byte* at(const void* base, size_t elements, int32_t dtype) {
  return static_cast<const std::byte*>(base) + elements * dtype_bytes(dtype);
}
std::byte* at(void* base, size_t elements, int32_t dtype) {
  return static_cast<std::byte*>(base) + elements * dtype_bytes(dtype);
}

}  // namespace

std::optional<std::string> unsupported_reason(const NcclContext& context, const Call& call) {
  if (!is_reduction(call.kind)) return std::nullopt;
  if (call.op == kUserOp) return "user-defined operations run on host memory only";
  if (call.nonfinite != NonFiniteCheck::kOff)
    return "the non-finite check works on host memory and in reducers only";
  const bool bitwise = call.op == DSC_OP_BAND || call.op == DSC_OP_BOR || call.op == DSC_OP_BXOR;
  if (bitwise && (call.dtype != DSC_DTYPE_BOOL || call.op == DSC_OP_BXOR))
    return std::string("NCCL has no ") + op_name(call.op);
  if (is_float8(call.dtype)) {
    if (context.library->number < kFirstFloat8)
      return "NCCL " + context.library->version + " has no 8-bit floats, expected 2.24 or newer";
    if (context.device->compute_capability() < kFloat8Capability)
      return "sums of 8-bit floats need compute capability 9.0 or newer, this device has " +
             std::to_string(context.device->compute_capability() / 10) + "." +
             std::to_string(context.device->compute_capability() % 10);
  }
  const bool scales = call.dtype == DSC_DTYPE_F16 || call.dtype == DSC_DTYPE_F32 ||
                      call.dtype == DSC_DTYPE_F64 || call.dtype == DSC_DTYPE_BF16;
  if (call.prescale != 1 && !scales) return "only f16, bf16, f32 and f64 can be scaled on a device";
  return std::nullopt;
}

void check_aligned(const Call& call, size_t send_bytes, size_t recv_bytes) {
  if (!is_reduction(call.kind)) return;
  const size_t width = dtype_bytes(call.dtype);
  const auto check = [&](const char* what, const void* memory, size_t bytes) {
    const size_t rest = reinterpret_cast<uintptr_t>(memory) % width;
    if (bytes > 0 && rest != 0)
      fail(DSC_ERR_INVALID_ARG,
           "%s is %zu byte%s past a multiple of %zu: expected device memory that is aligned to its elements "
           "(%s), which are reduced",
           what, rest, rest == 1 ? "" : "s", width, dtype_name(call.dtype));
  };
  check("send", call.send, send_bytes);
  check("recv", call.recv, recv_bytes);
}

// NCCL requires ncclGroupEnd also after an error in the group.
void NcclOperations::put_group(NcclComm* comm, std::span<const Call> calls, CudaStream* stream) {
  const auto& nccl = communicator_->nccl();
  communicator_->check(nccl.group_start(), "ncclGroupStart");
  Error first(DSC_OK, "");
  capture(
      [&] {
        for (const Call& call : calls) put(comm, call, stream);
      },
      [&](const Error& error) { first = error; });
  const NcclResult ended = nccl.group_end();
  if (first.code() != DSC_OK) throw first;
  communicator_->check(ended, "ncclGroupEnd");
}

void NcclOperations::enqueue(std::span<const Call> calls, CudaStream* stream, const NcclWait& limits) {
  communicator_->enqueue(
      [&](NcclComm* comm) {
        if (calls.size() == 1 && is_one_call(calls[0].kind))
          put(comm, calls[0], stream);
        else
          put_group(comm, calls, stream);
      },
      limits);
}

void NcclOperations::put(NcclComm* comm, const Call& call, CudaStream* stream) {
  const auto& nccl = communicator_->nccl();
  const size_t bytes = bytes_of(call.count, call.dtype);
  switch (call.kind) {
    case OpKind::kAllReduce:
    case OpKind::kReduce:
    case OpKind::kReduceScatter:
      return put_reduction(comm, call, stream);
    case OpKind::kBroadcast:
      return communicator_->check(nccl.broadcast(call.root == rank_ ? call.send : call.recv, call.recv, bytes,
                                                 kMovedAs, call.root, comm, stream),
                                  "ncclBroadcast");
    case OpKind::kAllGather:
      return communicator_->check(nccl.all_gather(call.send, call.recv, bytes, kMovedAs, comm, stream),
                                  "ncclAllGather");
    case OpKind::kSend:
      return send(call.send, bytes, call.root, comm, stream);
    case OpKind::kRecv:
      return receive(call.recv, bytes, call.root, comm, stream);
    case OpKind::kGather:
    case OpKind::kScatter:
    case OpKind::kAllToAll:
      return put_blocks(comm, call, stream);
    case OpKind::kAllGatherV:
    case OpKind::kReduceScatterV:
    case OpKind::kAllToAllV:
      return put_lists(comm, call, stream);
    default:
      fail(DSC_ERR_INTERNAL, "%s does not run on a device", op_kind_name(call.kind));
  }
}

// Returns NCCL's operation for a call. Scaled sums belong to one communicator and are kept for later calls.
NcclOp NcclOperations::op_of(NcclComm* comm, const Call& call) {
  if (call.prescale == 1) return plain_op(call);
  const auto known = scales_.find({call.prescale, call.dtype});
  if (known != scales_.end()) return known->second;
  // Operations that are on streams already have their own copy of the factor.
  if (scales_.size() == kMostScales) {
    communicator_->drop_scaled_sum(comm, scales_.begin()->second);
    scales_.erase(scales_.begin());
  }
  Scalar scalar = scalar_of(call.prescale, call.dtype);
  const NcclOp op = communicator_->make_scaled_sum(comm, scalar.bytes, reduced_as(call.dtype));
  scales_.emplace(std::pair(call.prescale, call.dtype), op);
  return op;
}

void NcclOperations::put_reduction(NcclComm* comm, const Call& call, CudaStream* stream) {
  const auto& nccl = communicator_->nccl();
  const NcclType type = reduced_as(call.dtype);
  const NcclOp op = op_of(comm, call);
  if (call.kind == OpKind::kAllReduce)
    return communicator_->check(nccl.all_reduce(call.send, call.recv, call.count, type, op, comm, stream),
                                "ncclAllReduce");
  if (call.kind == OpKind::kReduceScatter)
    return communicator_->check(nccl.reduce_scatter(call.send, call.recv, call.count, type, op, comm, stream),
                                "ncclReduceScatter");
  communicator_->check(nccl.reduce(call.send, call.recv, call.count, type, op, call.root, comm, stream),
                       "ncclReduce");
}

void NcclOperations::send(const void* data, size_t bytes, int peer, NcclComm* comm, CudaStream* stream) {
  communicator_->check(communicator_->nccl().send(data, bytes, kMovedAs, peer, comm, stream), "ncclSend");
}

void NcclOperations::receive(void* data, size_t bytes, int peer, NcclComm* comm, CudaStream* stream) {
  communicator_->check(communicator_->nccl().recv(data, bytes, kMovedAs, peer, comm, stream), "ncclRecv");
}

// Uses NCCL's own functions for blocks if the library has them; otherwise sends messages in one NCCL group.
void NcclOperations::put_blocks(NcclComm* comm, const Call& call, CudaStream* stream) {
  const auto& nccl = communicator_->nccl();
  const size_t bytes = bytes_of(call.count, call.dtype);
  if (call.kind == OpKind::kGather && nccl.gather)
    return communicator_->check(nccl.gather(call.send, call.recv, bytes, kMovedAs, call.root, comm, stream),
                                "ncclGather");
  if (call.kind == OpKind::kScatter && nccl.scatter)
    return communicator_->check(nccl.scatter(call.send, call.recv, bytes, kMovedAs, call.root, comm, stream),
                                "ncclScatter");
  if (call.kind == OpKind::kAllToAll && nccl.all_to_all)
    return communicator_->check(nccl.all_to_all(call.send, call.recv, bytes, kMovedAs, comm, stream),
                                "ncclAlltoAll");
  const bool is_root = rank_ == call.root;
  for (int peer = 0; peer < ranks_; ++peer) {
    const size_t start = static_cast<size_t>(peer) * call.count;
    if (call.kind == OpKind::kAllToAll || (call.kind == OpKind::kScatter && is_root))
      send(at(call.send, start, call.dtype), bytes, peer, comm, stream);
    if (call.kind == OpKind::kAllToAll || (call.kind == OpKind::kGather && is_root))
      receive(at(call.recv, start, call.dtype), bytes, peer, comm, stream);
  }
  if (call.kind == OpKind::kGather) send(call.send, bytes, call.root, comm, stream);
  if (call.kind == OpKind::kScatter) receive(call.recv, bytes, call.root, comm, stream);
}

// With blocks of different lengths, each rank needs its own broadcast, reduction or message.
void NcclOperations::put_lists(NcclComm* comm, const Call& call, CudaStream* stream) {
  const auto& nccl = communicator_->nccl();
  for (int peer = 0; peer < ranks_; ++peer) {
    const auto index = static_cast<size_t>(peer);
    if (call.kind == OpKind::kAllGatherV) {
      const BlockList& blocks = *call.recv_blocks;
      std::byte* const block = at(call.recv, blocks.starts[index], call.dtype);
      communicator_->check(
          nccl.broadcast(peer == rank_ ? call.send : block, block,
                         bytes_of(blocks.lengths[index], call.dtype), kMovedAs, peer, comm, stream),
          "ncclBroadcast");
    } else if (call.kind == OpKind::kReduceScatterV) {
      const BlockList& blocks = *call.send_blocks;
      communicator_->check(
          nccl.reduce(at(call.send, blocks.starts[index], call.dtype), call.recv, blocks.lengths[index],
                      reduced_as(call.dtype), op_of(comm, call), peer, comm, stream),
          "ncclReduce");
    } else {
      const BlockList &sent = *call.send_blocks, &received = *call.recv_blocks;
      if (sent.lengths[index] > 0)
        send(at(call.send, sent.starts[index], call.dtype), bytes_of(sent.lengths[index], call.dtype), peer,
             comm, stream);
      if (received.lengths[index] > 0)
        receive(at(call.recv, received.starts[index], call.dtype),
                bytes_of(received.lengths[index], call.dtype), peer, comm, stream);
    }
  }
}

}  // namespace dsc
