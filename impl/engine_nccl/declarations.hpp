// The parts of nccl.h (2.28) that are used, so that the header is not needed to build. Layouts, numbers and
// prototypes are those of NCCL; unit/nccl_declarations compares them if the real header is installed.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

#include "device/cuda_declarations.hpp"

namespace dsc {

struct NcclComm;
struct NcclWindow;

enum class NcclResult : uint32_t {
  success = 0,
  unhandled_cuda_error = 1,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,
  in_progress = 7,
};

enum class NcclType : uint32_t {
  int8 = 0,
  uint8 = 1,
  int32 = 2,
  uint32 = 3,
  int64 = 4,
  uint64 = 5,
  float16 = 6,
  float32 = 7,
  float64 = 8,
  bfloat16 = 9,
  float8_e4m3 = 10,
  float8_e5m2 = 11,
};

// Operations made by red_op_create_pre_mul_sum have greater numbers.
enum class NcclOp : uint32_t { sum = 0, prod = 1, max = 2, min = 3, avg = 4 };

enum class NcclScalarResidence : uint32_t { device = 0, host_immediate = 1 };

struct NcclUniqueId {
  char bytes[128];
};

inline constexpr int kNcclUnset = INT_MIN;
inline constexpr int kNcclNoColor = -1;
inline constexpr int kNcclWindowDefault = 0, kNcclWindowSymmetric = 1;
inline constexpr int kNcclShrinkDefault = 0, kNcclShrinkAbort = 1;
inline constexpr int kNcclRevokeDefault = 0;

// The struct carries its size, so that older libraries read only the fields that they know.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  uint32_t magic = 0xcafebeef;
  uint32_t version = 22809;  // version of this layout
  int blocking = kNcclUnset;
  int cga_cluster_size = kNcclUnset;
  int min_ctas = kNcclUnset;
  int max_ctas = kNcclUnset;
  const char* net_name = nullptr;
  int split_share = kNcclUnset;
  int traffic_class = kNcclUnset;
  const char* comm_name = nullptr;
  int collnet_enable = kNcclUnset;
  int cta_policy = kNcclUnset;
  int shrink_share = kNcclUnset;
  int nvls_ctas = kNcclUnset;
  int n_channels_per_net_peer = kNcclUnset;
  int nvlink_centric_sched = kNcclUnset;
};

// Functions are named as in nccl.h, without "nccl". A comment names the feature of the functions below it:
// they are all null if the library lacks one of them.
struct NcclFunctions {
  NcclResult (*get_version)(int* version) = nullptr;
  const char* (*get_error_string)(NcclResult result) = nullptr;
  const char* (*get_last_error)(NcclComm* comm) = nullptr;

  NcclResult (*get_unique_id)(NcclUniqueId* id) = nullptr;
  NcclResult (*comm_init_rank_config)(NcclComm** comm, int ranks, NcclUniqueId id, int rank,
                                      NcclConfig* config) = nullptr;
  NcclResult (*comm_finalize)(NcclComm* comm) = nullptr;
  NcclResult (*comm_destroy)(NcclComm* comm) = nullptr;
  NcclResult (*comm_abort)(NcclComm* comm) = nullptr;
  NcclResult (*comm_get_async_error)(NcclComm* comm, NcclResult* error) = nullptr;
  NcclResult (*comm_count)(NcclComm* comm, int* ranks) = nullptr;
  NcclResult (*comm_cu_device)(NcclComm* comm, int* device) = nullptr;
  NcclResult (*comm_user_rank)(NcclComm* comm, int* rank) = nullptr;

  NcclResult (*group_start)() = nullptr;
  NcclResult (*group_end)() = nullptr;
  NcclResult (*all_reduce)(const void* send, void* recv, size_t count, NcclType type, NcclOp op,
                           NcclComm* comm, CudaStream* stream) = nullptr;
  NcclResult (*reduce)(const void* send, void* recv, size_t count, NcclType type, NcclOp op, int root,
                       NcclComm* comm, CudaStream* stream) = nullptr;
  NcclResult (*broadcast)(const void* send, void* recv, size_t count, NcclType type, int root, NcclComm* comm,
                          CudaStream* stream) = nullptr;
  NcclResult (*all_gather)(const void* send, void* recv, size_t send_count, NcclType type, NcclComm* comm,
                           CudaStream* stream) = nullptr;
  NcclResult (*reduce_scatter)(const void* send, void* recv, size_t recv_count, NcclType type, NcclOp op,
                               NcclComm* comm, CudaStream* stream) = nullptr;
  NcclResult (*send)(const void* send, size_t count, NcclType type, int peer, NcclComm* comm,
                     CudaStream* stream) = nullptr;
  NcclResult (*recv)(void* recv, size_t count, NcclType type, int peer, NcclComm* comm,
                     CudaStream* stream) = nullptr;
  NcclResult (*red_op_create_pre_mul_sum)(NcclOp* op, void* scalar, NcclType type,
                                          NcclScalarResidence residence, NcclComm* comm) = nullptr;
  NcclResult (*red_op_destroy)(NcclOp op, NcclComm* comm) = nullptr;

  // split
  NcclResult (*comm_split)(NcclComm* comm, int color, int key, NcclComm** part, NcclConfig* config) = nullptr;
  // scalable_init
  NcclResult (*comm_init_rank_scalable)(NcclComm** comm, int ranks, int rank, int ids, NcclUniqueId* id,
                                        NcclConfig* config) = nullptr;
  // mem_alloc
  NcclResult (*mem_alloc)(void** memory, size_t bytes) = nullptr;
  NcclResult (*mem_free)(void* memory) = nullptr;
  // windows
  NcclResult (*comm_window_register)(NcclComm* comm, void* memory, size_t bytes, NcclWindow** window,
                                     int flags) = nullptr;
  NcclResult (*comm_window_deregister)(NcclComm* comm, NcclWindow* window) = nullptr;
  // revoke
  NcclResult (*comm_revoke)(NcclComm* comm, int flags) = nullptr;
  // shrink
  NcclResult (*comm_shrink)(NcclComm* comm, int* excluded, int n_excluded, NcclComm** rest,
                            NcclConfig* config, int flags) = nullptr;
  // all_to_all, gather, scatter
  NcclResult (*all_to_all)(const void* send, void* recv, size_t count, NcclType type, NcclComm* comm,
                           CudaStream* stream) = nullptr;
  NcclResult (*gather)(const void* send, void* recv, size_t count, NcclType type, int root, NcclComm* comm,
                       CudaStream* stream) = nullptr;
  NcclResult (*scatter)(const void* send, void* recv, size_t count, NcclType type, int root, NcclComm* comm,
                        CudaStream* stream) = nullptr;
};

}  // namespace dsc
