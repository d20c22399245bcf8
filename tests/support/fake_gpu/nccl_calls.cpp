// The calls that enqueue operations on streams, and related calls.
#include <cstdlib>

#include "cuda_api.hpp"
#include "nccl_api.hpp"
#include "nccl_operation.hpp"

namespace fake_gpu {
namespace {

constexpr unsigned kTypes = 12, kBuiltInOps = 5;

bool is_root(const Comm& comm, int rank) { return rank >= 0 && rank < comm.ranks; }

NcclResult check_buffers(const Comm& comm, const Operation& operation) {
  const Buffers buffers = buffers_of(comm, operation);
  const struct {
    const void* memory;
    size_t bytes;
    const char* what;
  } ends[] = {{operation.send, buffers.send_bytes, "sends"},
              {operation.recv, buffers.recv_bytes, "receives"}};
  for (const auto& end : ends) {
    if (end.bytes > 0 && !cuda().holds(comm.device, end.memory, end.bytes))
      return misused(NcclResult::invalid_argument, "%s: what it %s is not in one allocation of device %d",
                     operation.name, end.what, comm.device);
    if (end.bytes > 0 && reinterpret_cast<uintptr_t>(end.memory) % bytes_of(operation.type) != 0)
      return misused(NcclResult::invalid_argument, "%s: what it %s is not aligned to its elements",
                     operation.name, end.what);
  }
  if (operation.kind == Kind::all_to_all && operation.count > 0 && operation.send == operation.recv)
    return misused(NcclResult::invalid_argument, "%s in place", operation.name);
  return NcclResult::success;
}

NcclResult check(Comm& comm, Operation& operation) {
  const auto type = static_cast<unsigned>(operation.type), op = static_cast<unsigned>(operation.op);
  if (type >= kTypes || !is_root(comm, operation.root))
    return misused(NcclResult::invalid_argument, "%s with a bad type, root or peer", operation.name);
  if (op >= kBuiltInOps) {
    const auto scale = comm.scales.find(op);
    if (scale == comm.scales.end() || scale->second.type != operation.type)
      return misused(NcclResult::invalid_argument, "%s with a bad operation", operation.name);
    operation.scale = scale->second;
  }
  if (!cuda().is_stream(comm.device, operation.stream))
    return misused(NcclResult::invalid_argument, "%s on a stream that is not of device %d", operation.name,
                   comm.device);
  const bool own = point_to_point(operation) && operation.root == comm.rank;
  if (own && !in_group())
    return misused(NcclResult::invalid_usage, "%s to itself outside of a group", operation.name);
  return check_buffers(comm, operation);
}

NcclResult call(NcclComm* handle, Operation operation) {
  const Use use(handle, operation.name);
  if (const NcclResult refused = use.refused(true); refused != NcclResult::success) return noted(refused);
  const CommPtr& comm = use.comm();
  if (const NcclResult bad = check(*comm, operation); bad != NcclResult::success) return noted(bad);
  operation.number = count("operation", comm->world_rank);
  if (strikes("invalid_usage", comm->world_rank, operation.number)) return noted(NcclResult::invalid_usage);
  return noted(add_operation(comm, operation));
}

// Memory of ncclMemAlloc, with the number of windows of each block.
std::map<uintptr_t, int>& symmetric_memory() {
  static auto* const all = new std::map<uintptr_t, int>;
  return *all;
}

std::mutex& symmetric_lock() {
  static auto* const lock = new std::mutex;
  return *lock;
}

}  // namespace

void let_go_of_windows(Comm& comm) {
  const std::lock_guard guard(symmetric_lock());
  for (const auto& [number, memory] : comm.windows) --symmetric_memory()[memory];
  comm.windows.clear();
}

}  // namespace fake_gpu

using namespace fake_gpu;

extern "C" {

NcclResult ncclGetVersion(int* version) {
  *version = number_of("FAKE_NCCL_VERSION", 22809);
  return NcclResult::success;
}

const char* ncclGetErrorString(NcclResult result) {
  static constexpr const char* kWords[] = {
      "fake NCCL: no error",       "fake NCCL: unhandled cuda error", "fake NCCL: unhandled system error",
      "fake NCCL: internal error", "fake NCCL: invalid argument",     "fake NCCL: invalid usage",
      "fake NCCL: remote error",   "fake NCCL: in progress"};
  const auto number = static_cast<unsigned>(result);
  return number < 8 ? kWords[number] : "fake NCCL: unknown result";
}

// The text is valid until the next call on this thread.
const char* ncclGetLastError(NcclComm* comm) {
  thread_local char text[400];
  std::snprintf(text, sizeof text, "%s", last_error_of(comm).c_str());
  return text;
}

NcclResult ncclAllReduce(const void* send, void* recv, size_t count, NcclType type, NcclOp op, NcclComm* comm,
                         CudaStream* stream) {
  return call(comm, {Kind::all_reduce, "ncclAllReduce", send, recv, count, type, op, 0, stream});
}

NcclResult ncclReduce(const void* send, void* recv, size_t count, NcclType type, NcclOp op, int root,
                      NcclComm* comm, CudaStream* stream) {
  return call(comm, {Kind::reduce, "ncclReduce", send, recv, count, type, op, root, stream});
}

NcclResult ncclBroadcast(const void* send, void* recv, size_t count, NcclType type, int root, NcclComm* comm,
                         CudaStream* stream) {
  return call(comm, {Kind::broadcast, "ncclBroadcast", send, recv, count, type, {}, root, stream});
}

NcclResult ncclAllGather(const void* send, void* recv, size_t send_count, NcclType type, NcclComm* comm,
                         CudaStream* stream) {
  return call(comm, {Kind::all_gather, "ncclAllGather", send, recv, send_count, type, {}, 0, stream});
}

NcclResult ncclReduceScatter(const void* send, void* recv, size_t recv_count, NcclType type, NcclOp op,
                             NcclComm* comm, CudaStream* stream) {
  return call(comm, {Kind::reduce_scatter, "ncclReduceScatter", send, recv, recv_count, type, op, 0, stream});
}

NcclResult ncclSend(const void* send, size_t count, NcclType type, int peer, NcclComm* comm,
                    CudaStream* stream) {
  return call(comm, {Kind::send, "ncclSend", send, nullptr, count, type, {}, peer, stream});
}

NcclResult ncclRecv(void* recv, size_t count, NcclType type, int peer, NcclComm* comm, CudaStream* stream) {
  return call(comm, {Kind::recv, "ncclRecv", nullptr, recv, count, type, {}, peer, stream});
}

NcclResult ncclAlltoAll(const void* send, void* recv, size_t count, NcclType type, NcclComm* comm,
                        CudaStream* stream) {
  return call(comm, {Kind::all_to_all, "ncclAlltoAll", send, recv, count, type, {}, 0, stream});
}

NcclResult ncclGather(const void* send, void* recv, size_t count, NcclType type, int root, NcclComm* comm,
                      CudaStream* stream) {
  return call(comm, {Kind::gather, "ncclGather", send, recv, count, type, {}, root, stream});
}

NcclResult ncclScatter(const void* send, void* recv, size_t count, NcclType type, int root, NcclComm* comm,
                       CudaStream* stream) {
  return call(comm, {Kind::scatter, "ncclScatter", send, recv, count, type, {}, root, stream});
}

NcclResult ncclRedOpCreatePreMulSum(NcclOp* op, void* scalar, NcclType type,
                                    dsc::NcclScalarResidence residence, NcclComm* handle) {
  const Use use(handle, "ncclRedOpCreatePreMulSum");
  if (const NcclResult refused = use.refused(true); refused != NcclResult::success) return refused;
  if (!op || !scalar || static_cast<unsigned>(type) >= kTypes)
    return misused(NcclResult::invalid_argument, "ncclRedOpCreatePreMulSum with a bad scalar or type");
  Comm& comm = *use.comm();
  Scale scale{.type = type, .number = 1, .device_memory = nullptr};
  if (residence == dsc::NcclScalarResidence::host_immediate)
    scale.number = number_in(scalar, type);
  else if (cuda().holds(comm.device, scalar, bytes_of(type)))
    scale.device_memory = scalar;
  else
    return misused(NcclResult::invalid_argument, "ncclRedOpCreatePreMulSum: the scalar is not on device %d",
                   comm.device);
  *op = static_cast<NcclOp>(comm.next_op);
  comm.scales[comm.next_op++] = scale;
  return NcclResult::success;
}

NcclResult ncclRedOpDestroy(NcclOp op, NcclComm* handle) {
  const Use use(handle, "ncclRedOpDestroy");
  if (!use.comm()) return NcclResult::invalid_argument;
  return use.comm()->scales.erase(static_cast<unsigned>(op)) == 1
             ? NcclResult::success
             : misused(NcclResult::invalid_argument, "ncclRedOpDestroy of what is no operation (any more)");
}

NcclResult ncclMemAlloc(void** memory, size_t bytes) {
  CudaAddress address = 0;
  if (cuda().allocate(&address, bytes) != kOk) return NcclResult::unhandled_cuda_error;
  *memory = reinterpret_cast<void*>(address);
  const std::lock_guard guard(symmetric_lock());
  symmetric_memory()[address] = 0;
  return NcclResult::success;
}

NcclResult ncclMemFree(void* memory) {
  if (!memory) return NcclResult::success;
  const auto address = reinterpret_cast<uintptr_t>(memory);
  {
    const std::lock_guard guard(symmetric_lock());
    const auto found = symmetric_memory().find(address);
    const bool known = found != symmetric_memory().end();
    if (!known || found->second > 0)
      return misused(NcclResult::invalid_argument, "ncclMemFree of what is %s",
                     known ? "a window" : "not of ncclMemAlloc (any more)");
    symmetric_memory().erase(found);
  }
  return cuda().free(address) == kOk ? NcclResult::success : NcclResult::unhandled_cuda_error;
}

// Makes a window for memory of ncclMemAlloc. Other memory gets no window, which is not an error.
NcclResult ncclCommWindowRegister(NcclComm* handle, void* memory, size_t bytes, NcclWindow** window, int) {
  const Use use(handle, "ncclCommWindowRegister");
  if (const NcclResult refused = use.refused(true); refused != NcclResult::success) return noted(refused);
  const CommPtr& comm = use.comm();
  if (!window || bytes == 0 || !cuda().holds(comm->device, memory, bytes))
    return noted(
        misused(NcclResult::invalid_argument, "ncclCommWindowRegister of what is no memory of the device"));
  *window = nullptr;
  return noted(run_job(comm, [=, comm = comm] {
    if (!comm->region->barrier([&] { return ended(*comm); })) return NcclResult::internal_error;
    const std::lock_guard guard(symmetric_lock());
    const auto found = symmetric_memory().find(reinterpret_cast<uintptr_t>(memory));
    if (found == symmetric_memory().end()) return NcclResult::success;
    ++found->second;
    const uintptr_t number = 0xc000000000 + ++comm->windows_made;
    comm->windows[number] = found->first;
    *window = reinterpret_cast<NcclWindow*>(number);
    return NcclResult::success;
  }));
}

NcclResult ncclCommWindowDeregister(NcclComm* handle, NcclWindow* window) {
  const Use use(handle, "ncclCommWindowDeregister");
  if (!use.comm()) return NcclResult::invalid_argument;
  if (!window) return NcclResult::success;
  const auto found = use.comm()->windows.find(reinterpret_cast<uintptr_t>(window));
  if (found == use.comm()->windows.end())
    return misused(NcclResult::invalid_argument, "ncclCommWindowDeregister of what is no window (any more)");
  const std::lock_guard guard(symmetric_lock());
  --symmetric_memory()[found->second];
  use.comm()->windows.erase(found);
  return NcclResult::success;
}

}  // extern "C"
