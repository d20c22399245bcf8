/* A fake NCCL that can be loaded and asked for its version, no more: everything else is an internal error.
 * FAKE_NCCL_VERSION replaces its version. NO_FEATURES leaves out what only some versions have, NO_ABORT and
 * NO_FREE one function, NO_VERSION makes it another library. */
#include <stdlib.h>

#define FAKE(function) \
  int function(void);  \
  int function(void) { return 3; }

const char* ncclGetErrorString(int result);
const char* ncclGetErrorString(int result) {
  return result == 0 ? "fake NCCL: no error" : "fake NCCL: error";
}
const char* ncclGetLastError(void* comm);
const char* ncclGetLastError(void* comm) {
  return comm == NULL ? "fake NCCL" : "fake NCCL, with a communicator";
}

#ifndef NO_VERSION
int ncclGetVersion(int* version);
int ncclGetVersion(int* version) {
  const char* const wanted = getenv("FAKE_NCCL_VERSION");
  *version = wanted == NULL ? 22809 : atoi(wanted);
  return 0;
}
#endif

FAKE(ncclGetUniqueId)
FAKE(ncclCommInitRankConfig)
FAKE(ncclCommFinalize)
FAKE(ncclCommDestroy)
#ifndef NO_ABORT
FAKE(ncclCommAbort)
#endif
FAKE(ncclCommGetAsyncError)
FAKE(ncclCommCount)
FAKE(ncclCommCuDevice)
FAKE(ncclCommUserRank)
FAKE(ncclGroupStart)
FAKE(ncclGroupEnd)
FAKE(ncclAllReduce)
FAKE(ncclReduce)
FAKE(ncclBroadcast)
FAKE(ncclAllGather)
FAKE(ncclReduceScatter)
FAKE(ncclSend)
FAKE(ncclRecv)
FAKE(ncclRedOpCreatePreMulSum)
FAKE(ncclRedOpDestroy)

#ifndef NO_FEATURES
FAKE(ncclCommSplit)
FAKE(ncclCommInitRankScalable)
FAKE(ncclMemAlloc)
#ifndef NO_FREE
FAKE(ncclMemFree)
#endif
FAKE(ncclCommWindowRegister)
FAKE(ncclCommWindowDeregister)
FAKE(ncclCommRevoke)
FAKE(ncclCommShrink)
FAKE(ncclAlltoAll)
FAKE(ncclGather)
FAKE(ncclScatter)
#endif
