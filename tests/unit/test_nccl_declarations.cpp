// Compares libdsc's declarations of CUDA and NCCL with those of NVIDIA's headers.
#include <cuda.h>
#include <nccl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cstring>
#include <type_traits>

#include "engine_nccl/declarations.hpp"

extern "C" {
#include <cmocka.h>
}

namespace {

// NVIDIA's types, translated to libdsc's types.
template <typename T>
struct Translated {
  using type = T;
};
template <typename T>
using Ours = typename Translated<T>::type;

template <typename T>
struct Translated<T*> {
  using type = Ours<T>*;
};
template <typename R, typename... A>
struct Translated<R (*)(A...)> {
  using type = Ours<R> (*)(Ours<A>...);
};
#define TRANSLATED(theirs, ours) \
  template <>                    \
  struct Translated<theirs> {    \
    using type = ours;           \
  };                             \
  static_assert(sizeof(theirs) == sizeof(ours) && alignof(theirs) == alignof(ours))
TRANSLATED(ncclResult_t, dsc::NcclResult);
TRANSLATED(ncclDataType_t, dsc::NcclType);
TRANSLATED(ncclRedOp_t, dsc::NcclOp);
TRANSLATED(ncclScalarResidence_t, dsc::NcclScalarResidence);
TRANSLATED(ncclUniqueId, dsc::NcclUniqueId);
TRANSLATED(ncclConfig_t, dsc::NcclConfig);
TRANSLATED(ncclComm_t, dsc::NcclComm*);
TRANSLATED(ncclWindow_t, dsc::NcclWindow*);
TRANSLATED(cudaStream_t, dsc::CudaStream*);
TRANSLATED(CUresult, dsc::CudaResult);
TRANSLATED(CUcontext, dsc::CudaContext*);
TRANSLATED(CUuuid, dsc::CudaUuid);
TRANSLATED(CUevent, dsc::CudaEvent*);
TRANSLATED(CUmodule, dsc::CudaModule*);
TRANSLATED(CUfunction, dsc::CudaFunction*);
TRANSLATED(CUpointer_attribute, dsc::CudaPointerAttribute);
TRANSLATED(CUdevice_attribute, dsc::CudaDeviceAttribute);
TRANSLATED(CUstreamCaptureStatus, dsc::CudaCaptureStatus);
TRANSLATED(CUstreamCaptureMode, dsc::CudaCaptureMode);
static_assert(std::is_same_v<CUdevice, dsc::CudaDevice> && std::is_same_v<CUdeviceptr, dsc::CudaAddress>);
static_assert(std::is_same_v<cudaStream_t, CUstream>);
static_assert(std::is_same_v<Ours<ncclComm_t*>, dsc::NcclComm**>);

constexpr int kFirst = __COUNTER__;
#define SAME(table, function, ours) \
  static_assert(__COUNTER__ > 0 && std::is_same_v<Ours<decltype(&function)>, decltype(dsc::table::ours)>)
SAME(NcclFunctions, ncclGetVersion, get_version);
SAME(NcclFunctions, ncclGetErrorString, get_error_string);
SAME(NcclFunctions, ncclGetLastError, get_last_error);
SAME(NcclFunctions, ncclGetUniqueId, get_unique_id);
SAME(NcclFunctions, ncclCommInitRankConfig, comm_init_rank_config);
SAME(NcclFunctions, ncclCommFinalize, comm_finalize);
SAME(NcclFunctions, ncclCommDestroy, comm_destroy);
SAME(NcclFunctions, ncclCommAbort, comm_abort);
SAME(NcclFunctions, ncclCommGetAsyncError, comm_get_async_error);
SAME(NcclFunctions, ncclCommCount, comm_count);
SAME(NcclFunctions, ncclCommCuDevice, comm_cu_device);
SAME(NcclFunctions, ncclCommUserRank, comm_user_rank);
SAME(NcclFunctions, ncclGroupStart, group_start);
SAME(NcclFunctions, ncclGroupEnd, group_end);
SAME(NcclFunctions, ncclAllReduce, all_reduce);
SAME(NcclFunctions, ncclReduce, reduce);
SAME(NcclFunctions, ncclBroadcast, broadcast);
SAME(NcclFunctions, ncclAllGather, all_gather);
SAME(NcclFunctions, ncclReduceScatter, reduce_scatter);
SAME(NcclFunctions, ncclSend, send);
SAME(NcclFunctions, ncclRecv, recv);
SAME(NcclFunctions, ncclRedOpCreatePreMulSum, red_op_create_pre_mul_sum);
SAME(NcclFunctions, ncclRedOpDestroy, red_op_destroy);
SAME(NcclFunctions, ncclCommSplit, comm_split);
SAME(NcclFunctions, ncclCommInitRankScalable, comm_init_rank_scalable);
SAME(NcclFunctions, ncclMemAlloc, mem_alloc);
SAME(NcclFunctions, ncclMemFree, mem_free);
SAME(NcclFunctions, ncclCommWindowRegister, comm_window_register);
SAME(NcclFunctions, ncclCommWindowDeregister, comm_window_deregister);
SAME(NcclFunctions, ncclCommRevoke, comm_revoke);
SAME(NcclFunctions, ncclCommShrink, comm_shrink);
SAME(NcclFunctions, ncclAlltoAll, all_to_all);
SAME(NcclFunctions, ncclGather, gather);
SAME(NcclFunctions, ncclScatter, scatter);
SAME(CudaFunctions, cuInit, init);
SAME(CudaFunctions, cuDriverGetVersion, driver_get_version);
SAME(CudaFunctions, cuGetErrorName, get_error_name);
SAME(CudaFunctions, cuGetErrorString, get_error_string);
SAME(CudaFunctions, cuDeviceGetCount, device_get_count);
SAME(CudaFunctions, cuDeviceGet, device_get);
SAME(CudaFunctions, cuDeviceGetName, device_get_name);
SAME(CudaFunctions, cuDeviceGetUuid_v2, device_get_uuid);
SAME(CudaFunctions, cuDeviceGetAttribute, device_get_attribute);
SAME(CudaFunctions, cuDevicePrimaryCtxRetain, device_primary_ctx_retain);
SAME(CudaFunctions, cuDevicePrimaryCtxRelease_v2, device_primary_ctx_release);
SAME(CudaFunctions, cuCtxGetCurrent, ctx_get_current);
SAME(CudaFunctions, cuCtxPushCurrent_v2, ctx_push_current);
SAME(CudaFunctions, cuCtxPopCurrent_v2, ctx_pop_current);
SAME(CudaFunctions, cuCtxGetDevice, ctx_get_device);
SAME(CudaFunctions, cuPointerGetAttributes, pointer_get_attributes);
SAME(CudaFunctions, cuMemAlloc_v2, mem_alloc);
SAME(CudaFunctions, cuMemFree_v2, mem_free);
SAME(CudaFunctions, cuMemAllocAsync, mem_alloc_async);
SAME(CudaFunctions, cuMemFreeAsync, mem_free_async);
SAME(CudaFunctions, cuMemHostAlloc, mem_host_alloc);
SAME(CudaFunctions, cuMemFreeHost, mem_free_host);
SAME(CudaFunctions, cuMemcpyAsync, memcpy_async);
SAME(CudaFunctions, cuMemsetD8Async, memset_d8_async);
SAME(CudaFunctions, cuStreamCreateWithPriority, stream_create_with_priority);
SAME(CudaFunctions, cuStreamDestroy_v2, stream_destroy);
SAME(CudaFunctions, cuStreamWaitEvent, stream_wait_event);
SAME(CudaFunctions, cuStreamSynchronize, stream_synchronize);
SAME(CudaFunctions, cuStreamIsCapturing, stream_is_capturing);
SAME(CudaFunctions, cuThreadExchangeStreamCaptureMode, thread_exchange_stream_capture_mode);
SAME(CudaFunctions, cuEventCreate, event_create);
SAME(CudaFunctions, cuEventDestroy_v2, event_destroy);
SAME(CudaFunctions, cuEventRecord, event_record);
SAME(CudaFunctions, cuEventQuery, event_query);
SAME(CudaFunctions, cuModuleLoadData, module_load_data);
SAME(CudaFunctions, cuModuleUnload, module_unload);
SAME(CudaFunctions, cuModuleGetFunction, module_get_function);
SAME(CudaFunctions, cuLaunchKernel, launch_kernel);
static_assert((__COUNTER__ - kFirst - 1) * sizeof(void*) ==
              sizeof(dsc::NcclFunctions) + sizeof(dsc::CudaFunctions));

template <typename Theirs, typename Mine>
constexpr bool equal(Theirs theirs, Mine mine) {
  return static_cast<int64_t>(theirs) == static_cast<int64_t>(mine);
}
using dsc::NcclOp, dsc::NcclResult, dsc::NcclType;
static_assert(equal(CUDA_SUCCESS, dsc::CudaResult::success));
static_assert(equal(CUDA_ERROR_INVALID_VALUE, dsc::CudaResult::invalid_value));
static_assert(equal(CUDA_ERROR_OUT_OF_MEMORY, dsc::CudaResult::out_of_memory));
static_assert(equal(CUDA_ERROR_NOT_INITIALIZED, dsc::CudaResult::not_initialized));
static_assert(equal(CUDA_ERROR_NO_DEVICE, dsc::CudaResult::no_device));
static_assert(equal(CUDA_ERROR_INVALID_DEVICE, dsc::CudaResult::invalid_device));
static_assert(equal(CUDA_ERROR_NO_BINARY_FOR_GPU, dsc::CudaResult::no_binary_for_gpu));
static_assert(equal(CUDA_ERROR_NOT_READY, dsc::CudaResult::not_ready));
static_assert(equal(CUDA_ERROR_CAPTURED_EVENT, dsc::CudaResult::captured_event));
static_assert(equal(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, dsc::CudaPointerAttribute::memory_type));
static_assert(equal(CU_POINTER_ATTRIBUTE_IS_MANAGED, dsc::CudaPointerAttribute::is_managed));
static_assert(equal(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, dsc::CudaPointerAttribute::device_ordinal));
static_assert(equal(CU_MEMORYTYPE_HOST, dsc::CudaMemoryType::host));
static_assert(equal(CU_MEMORYTYPE_DEVICE, dsc::CudaMemoryType::device));
static_assert(equal(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, dsc::CudaDeviceAttribute::multiprocessors));
static_assert(equal(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                    dsc::CudaDeviceAttribute::compute_capability_major));
static_assert(equal(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                    dsc::CudaDeviceAttribute::compute_capability_minor));
static_assert(equal(CU_STREAM_CAPTURE_STATUS_NONE, dsc::CudaCaptureStatus::none));
static_assert(equal(CU_STREAM_CAPTURE_STATUS_ACTIVE, dsc::CudaCaptureStatus::active));
static_assert(equal(CU_STREAM_CAPTURE_STATUS_INVALIDATED, dsc::CudaCaptureStatus::invalidated));
static_assert(equal(CU_STREAM_CAPTURE_MODE_GLOBAL, dsc::CudaCaptureMode::global));
static_assert(equal(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, dsc::CudaCaptureMode::thread_local_only));
static_assert(equal(CU_STREAM_CAPTURE_MODE_RELAXED, dsc::CudaCaptureMode::relaxed));
static_assert(CU_STREAM_NON_BLOCKING == dsc::kCudaStreamNonBlocking);
static_assert(CU_EVENT_DISABLE_TIMING == dsc::kCudaEventDisableTiming);
static_assert(equal(ncclSuccess, NcclResult::success));
static_assert(equal(ncclUnhandledCudaError, NcclResult::unhandled_cuda_error));
static_assert(equal(ncclSystemError, NcclResult::system_error));
static_assert(equal(ncclInternalError, NcclResult::internal_error));
static_assert(equal(ncclInvalidArgument, NcclResult::invalid_argument));
static_assert(equal(ncclInvalidUsage, NcclResult::invalid_usage));
static_assert(equal(ncclRemoteError, NcclResult::remote_error));
static_assert(equal(ncclInProgress, NcclResult::in_progress));
static_assert(equal(ncclInt8, NcclType::int8) && equal(ncclUint8, NcclType::uint8));
static_assert(equal(ncclInt32, NcclType::int32) && equal(ncclUint32, NcclType::uint32));
static_assert(equal(ncclInt64, NcclType::int64) && equal(ncclUint64, NcclType::uint64));
static_assert(equal(ncclFloat16, NcclType::float16) && equal(ncclFloat32, NcclType::float32));
static_assert(equal(ncclFloat64, NcclType::float64) && equal(ncclBfloat16, NcclType::bfloat16));
static_assert(equal(ncclFloat8e4m3, NcclType::float8_e4m3) && equal(ncclFloat8e5m2, NcclType::float8_e5m2));
static_assert(equal(ncclSum, NcclOp::sum) && equal(ncclProd, NcclOp::prod) && equal(ncclMax, NcclOp::max));
static_assert(equal(ncclMin, NcclOp::min) && equal(ncclAvg, NcclOp::avg));
static_assert(equal(ncclScalarDevice, dsc::NcclScalarResidence::device));
static_assert(equal(ncclScalarHostImmediate, dsc::NcclScalarResidence::host_immediate));
static_assert(NCCL_CONFIG_UNDEF_INT == dsc::kNcclUnset && NCCL_SPLIT_NOCOLOR == dsc::kNcclNoColor);
static_assert(NCCL_WIN_DEFAULT == dsc::kNcclWindowDefault);
static_assert(NCCL_WIN_COLL_SYMMETRIC == dsc::kNcclWindowSymmetric);
static_assert(NCCL_SHRINK_DEFAULT == dsc::kNcclShrinkDefault && NCCL_SHRINK_ABORT == dsc::kNcclShrinkAbort);
static_assert(NCCL_REVOKE_DEFAULT == dsc::kNcclRevokeDefault);

#define PLACED(theirs, ours) static_assert(offsetof(ncclConfig_t, theirs) == offsetof(dsc::NcclConfig, ours))
PLACED(size, size);
PLACED(magic, magic);
PLACED(version, version);
PLACED(blocking, blocking);
PLACED(cgaClusterSize, cga_cluster_size);
PLACED(minCTAs, min_ctas);
PLACED(maxCTAs, max_ctas);
PLACED(netName, net_name);
PLACED(splitShare, split_share);
PLACED(trafficClass, traffic_class);
PLACED(commName, comm_name);
PLACED(collnetEnable, collnet_enable);
PLACED(CTAPolicy, cta_policy);
PLACED(shrinkShare, shrink_share);
PLACED(nvlsCTAs, nvls_ctas);
PLACED(nChannelsPerNetPeer, n_channels_per_net_peer);
PLACED(nvlinkCentricSched, nvlink_centric_sched);

void a_fresh_config_is_theirs(void**) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const dsc::NcclConfig ours;
  assert_memory_equal(&theirs, &ours, sizeof ours);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(a_fresh_config_is_theirs)};
  return cmocka_run_group_tests_name("nccl_declarations", tests, nullptr, nullptr);
}
