// The functions of the fake NCCL, with the names and prototypes of the real NCCL.
#pragma once

#include "engine_nccl/declarations.hpp"

extern "C" {

dsc::NcclResult ncclGetVersion(int* version);
const char* ncclGetErrorString(dsc::NcclResult result);
const char* ncclGetLastError(dsc::NcclComm* comm);
dsc::NcclResult ncclGetUniqueId(dsc::NcclUniqueId* id);
dsc::NcclResult ncclCommInitRankConfig(dsc::NcclComm** comm, int ranks, dsc::NcclUniqueId id, int rank,
                                       dsc::NcclConfig* config);
dsc::NcclResult ncclCommFinalize(dsc::NcclComm* comm);
dsc::NcclResult ncclCommDestroy(dsc::NcclComm* comm);
dsc::NcclResult ncclCommAbort(dsc::NcclComm* comm);
dsc::NcclResult ncclCommGetAsyncError(dsc::NcclComm* comm, dsc::NcclResult* error);
dsc::NcclResult ncclCommCount(dsc::NcclComm* comm, int* ranks);
dsc::NcclResult ncclCommCuDevice(dsc::NcclComm* comm, int* device);
dsc::NcclResult ncclCommUserRank(dsc::NcclComm* comm, int* rank);
dsc::NcclResult ncclGroupStart();
dsc::NcclResult ncclGroupEnd();
dsc::NcclResult ncclAllReduce(const void* send, void* recv, size_t count, dsc::NcclType type, dsc::NcclOp op,
                              dsc::NcclComm* comm, dsc::CudaStream* stream);
dsc::NcclResult ncclReduce(const void* send, void* recv, size_t count, dsc::NcclType type, dsc::NcclOp op,
                           int root, dsc::NcclComm* comm, dsc::CudaStream* stream);
dsc::NcclResult ncclBroadcast(const void* send, void* recv, size_t count, dsc::NcclType type, int root,
                              dsc::NcclComm* comm, dsc::CudaStream* stream);
dsc::NcclResult ncclAllGather(const void* send, void* recv, size_t send_count, dsc::NcclType type,
                              dsc::NcclComm* comm, dsc::CudaStream* stream);
dsc::NcclResult ncclReduceScatter(const void* send, void* recv, size_t recv_count, dsc::NcclType type,
                                  dsc::NcclOp op, dsc::NcclComm* comm, dsc::CudaStream* stream);
dsc::NcclResult ncclSend(const void* send, size_t count, dsc::NcclType type, int peer, dsc::NcclComm* comm,
                         dsc::CudaStream* stream);
dsc::NcclResult ncclRecv(void* recv, size_t count, dsc::NcclType type, int peer, dsc::NcclComm* comm,
                         dsc::CudaStream* stream);
dsc::NcclResult ncclRedOpCreatePreMulSum(dsc::NcclOp* op, void* scalar, dsc::NcclType type,
                                         dsc::NcclScalarResidence residence, dsc::NcclComm* comm);
dsc::NcclResult ncclRedOpDestroy(dsc::NcclOp op, dsc::NcclComm* comm);
dsc::NcclResult ncclCommSplit(dsc::NcclComm* comm, int color, int key, dsc::NcclComm** part,
                              dsc::NcclConfig* config);
dsc::NcclResult ncclCommInitRankScalable(dsc::NcclComm** comm, int ranks, int rank, int ids,
                                         dsc::NcclUniqueId* id, dsc::NcclConfig* config);
dsc::NcclResult ncclMemAlloc(void** memory, size_t bytes);
dsc::NcclResult ncclMemFree(void* memory);
dsc::NcclResult ncclCommWindowRegister(dsc::NcclComm* comm, void* memory, size_t bytes,
                                       dsc::NcclWindow** window, int flags);
dsc::NcclResult ncclCommWindowDeregister(dsc::NcclComm* comm, dsc::NcclWindow* window);
dsc::NcclResult ncclCommRevoke(dsc::NcclComm* comm, int flags);
dsc::NcclResult ncclCommShrink(dsc::NcclComm* comm, int* excluded, int n_excluded, dsc::NcclComm** rest,
                               dsc::NcclConfig* config, int flags);
dsc::NcclResult ncclAlltoAll(const void* send, void* recv, size_t count, dsc::NcclType type,
                             dsc::NcclComm* comm, dsc::CudaStream* stream);
dsc::NcclResult ncclGather(const void* send, void* recv, size_t count, dsc::NcclType type, int root,
                           dsc::NcclComm* comm, dsc::CudaStream* stream);
dsc::NcclResult ncclScatter(const void* send, void* recv, size_t count, dsc::NcclType type, int root,
                            dsc::NcclComm* comm, dsc::CudaStream* stream);

}  // extern "C"
