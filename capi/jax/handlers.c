/**
 * @file handlers.c
 * @brief libdsc_jax.so: the functions that programs compiled by XLA call for operations. They work directly
 * on XLA's buffers.
 *
 * Each function takes arrays and, as the last argument, a token. It returns arrays and, as the last result, a
 * token. A token is a number other than 0. A program passes the token from call to call, which fixes the
 * order of the calls. A token of 0 means that nothing fixes the order of the call, so the call is refused.
 *
 * Attributes are 64-bit integers. "comm" is the handle of the communicator. The library checks it, so a
 * closed communicator is an error.
 */
#include <dsc/dsc.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "xla_ffi.h"

#define EXPORTED __attribute__((visibility("default")))
#define NOBODY (-1)
#define MAX_TEXT 1024

/** One call: what XLA passed, and the first error found in it. */
typedef struct call {
  const ffi_call_t* frame;
  const char* name;
  dsc_comm_t* comm;
  char problem[MAX_TEXT];
} call_t;

/** An array in terms of libdsc. */
typedef struct array {
  void* data;
  size_t count;
  size_t units; /**< number of dtype elements in one element of the array */
  dsc_dtype_t dtype;
} array_t;

typedef dsc_result_t operation_t(call_t* call);

// ---- The latest failure, because Python needs more than its text ----

static pthread_mutex_t failure_mutex = PTHREAD_MUTEX_INITIALIZER;
static dsc_error_info_t latest_failure;

static void note_failure(void) {
  dsc_error_info_t info = {.struct_size = sizeof info};
  if (dsc_last_error_info(&info) != DSC_OK) return;
  pthread_mutex_lock(&failure_mutex);
  latest_failure = info;
  pthread_mutex_unlock(&failure_mutex);
}

/** Copies the record of the latest failure of any handler on any thread. */
EXPORTED void dsc_jax_latest_failure(dsc_error_info_t* info) {
  pthread_mutex_lock(&failure_mutex);
  *info = latest_failure;
  pthread_mutex_unlock(&failure_mutex);
}

// ---- Errors ----

static int32_t code_of(dsc_result_t result) {
  switch (result) {
    case DSC_ERR_INVALID_ARG:
    case DSC_ERR_OVERFLOW:
      return FFI_INVALID_ARGUMENT;
    case DSC_ERR_UNSUPPORTED:
      return FFI_UNIMPLEMENTED;
    case DSC_ERR_TIMEOUT:
      return FFI_DEADLINE_EXCEEDED;
    case DSC_ERR_NOMEM:
      return FFI_RESOURCE_EXHAUSTED;
    case DSC_ERR_PEER_DEAD:
    case DSC_ERR_PEER_STALLED:
    case DSC_ERR_PEER_LEFT:
      return FFI_UNAVAILABLE;
    case DSC_ERR_REVOKED:
      return FFI_ABORTED;
    case DSC_ERR_BAD_HANDLE:
    case DSC_ERR_STATE:
    case DSC_ERR_BUSY:
    case DSC_ERR_MISMATCH:
      return FFI_FAILED_PRECONDITION;
    default:
      return FFI_INTERNAL;
  }
}

/** Returns an error for XLA. It contains the name of the result, from which Python chooses the exception, and
 * the text. */
static ffi_error_t* error_of(const call_t* call, dsc_result_t result, const char* text) {
  char message[MAX_TEXT + 128];
  snprintf(message, sizeof message, "%s: %s", dsc_result_name(result), text);
  ffi_error_args_t args = {sizeof args, NULL, message, code_of(result)};
  return call->frame->api->create_error(&args);
}

static dsc_result_t refuse(call_t* call, const char* text) {
  snprintf(call->problem, sizeof call->problem, "%s: %s", call->name, text);
  return DSC_ERR_INVALID_ARG;
}

// ---- Reading a call ----

static int64_t attribute(call_t* call, const char* name) {
  const ffi_attributes_t* given = &call->frame->attributes;
  for (int64_t i = 0; i < given->size; i++) {
    const ffi_text_t* found = given->names[i];
    if (found->length != strlen(name) || memcmp(found->data, name, found->length) != 0) continue;
    const ffi_scalar_t* scalar = given->values[i];
    if (given->types[i] != FFI_SCALAR || scalar->dtype != FFI_S64) break;
    return *(const int64_t*)scalar->value;
  }
  char text[128];
  snprintf(text, sizeof text, "attribute \"%s\" is missing or not a 64-bit integer", name);
  refuse(call, text);
  return 0;
}

/** Returns the dtype for an element type of XLA. If libdsc does not support the type, `units` is 0. */
static array_t element_of(int32_t type) {
  switch (type) {
    case FFI_PRED:
      return (array_t){.units = 1, .dtype = DSC_DTYPE_BOOL};
    case FFI_S8:
      return (array_t){.units = 1, .dtype = DSC_DTYPE_I8};
    case FFI_U8:
      return (array_t){.units = 1, .dtype = DSC_DTYPE_U8};
    case FFI_S32:
      return (array_t){.units = 1, .dtype = DSC_DTYPE_I32};
    case FFI_U32:
      return (array_t){.units = 1, .dtype = DSC_DTYPE_U32};
    case FFI_S64:
      return (array_t){.units = 1, .dtype = DSC_DTYPE_I64};
    case FFI_U64:
      return (array_t){.units = 1, .dtype = DSC_DTYPE_U64};
    case FFI_F16:
      return (array_t){.units = 1, .dtype = DSC_DTYPE_F16};
    case FFI_BF16:
      return (array_t){.units = 1, .dtype = DSC_DTYPE_BF16};
    case FFI_F32:
      return (array_t){.units = 1, .dtype = DSC_DTYPE_F32};
    case FFI_F64:
      return (array_t){.units = 1, .dtype = DSC_DTYPE_F64};
    case FFI_F8E4M3FN:
      return (array_t){.units = 1, .dtype = DSC_DTYPE_F8E4M3};
    case FFI_F8E5M2:
      return (array_t){.units = 1, .dtype = DSC_DTYPE_F8E5M2};
    case FFI_C64:
      return (array_t){.units = 2, .dtype = DSC_DTYPE_F32};
    case FFI_C128:
      return (array_t){.units = 2, .dtype = DSC_DTYPE_F64};
    case FFI_S16:
    case FFI_U16:
      return (array_t){.units = 2, .dtype = DSC_DTYPE_U8};
    default:
      return (array_t){.units = 0};
  }
}

static array_t array_at(call_t* call, const ffi_values_t* values, int64_t i) {
  const ffi_buffer_t* buffer = i < values->size && values->types[i] == FFI_BUFFER ? values->values[i] : NULL;
  array_t array = buffer == NULL ? (array_t){.units = 0} : element_of(buffer->dtype);
  if (array.units == 0) {
    refuse(call, buffer == NULL ? "an array is missing" : "this element type is not supported");
    return array;
  }
  array.data = buffer->data;
  array.count = array.units;
  for (int64_t dim = 0; dim < buffer->rank; dim++) array.count *= (size_t)buffer->dims[dim];
  return array;
}

static array_t argument(call_t* call, int64_t i) { return array_at(call, &call->frame->args, i); }
static array_t result(call_t* call, int64_t i) { return array_at(call, &call->frame->results, i); }
static int64_t last_argument(const call_t* call) { return call->frame->args.size - 1; }
static int64_t last_result(const call_t* call) { return call->frame->results.size - 1; }

/** Checks that a token fixes the order of the call. vmap may have turned the token into an array. */
static dsc_result_t check_token(call_t* call) {
  const array_t token = argument(call, last_argument(call));
  if (call->problem[0] != 0) return DSC_ERR_INVALID_ARG;
  const float* values = token.data;
  if (token.dtype != DSC_DTYPE_F32) return refuse(call, "the last argument is not a token");
  if (token.count == 0 || values[0] != 0) return DSC_OK;
  snprintf(call->problem, sizeof call->problem,
           "%s: nothing orders this call. It was traced for libdsc.jax.jit(), but another transformation "
           "runs it and may reorder calls; expected libdsc.jax.jit() instead of jax.jit(), or token=",
           call->name);
  return DSC_ERR_STATE;
}

static void give_token(call_t* call) {
  const array_t token = result(call, last_result(call));
  float* values = token.data;
  for (size_t i = 0; i < token.count && token.dtype == DSC_DTYPE_F32; i++) values[i] = 1;
}

// ---- Operations ----

static dsc_result_t reduce_one(call_t* call, int64_t i, dsc_op_t op) {
  const array_t send = argument(call, i), recv = result(call, i);
  if (call->problem[0] != 0) return DSC_ERR_INVALID_ARG;
  const int is_number = send.units == 1 || send.dtype == DSC_DTYPE_F32 || send.dtype == DSC_DTYPE_F64;
  if (!is_number) return refuse(call, "16-bit integers cannot be reduced");
  if (send.units == 2 && op != DSC_OP_SUM && op != DSC_OP_AVG)
    return refuse(call, "complex numbers support sum and avg only");
  return dsc_all_reduce(call->comm, send.data, recv.data, send.count, send.dtype, op, NULL, NULL);
}

static dsc_result_t broadcast_one(call_t* call, int64_t i, int32_t root) {
  const array_t send = argument(call, i), recv = result(call, i);
  if (call->problem[0] != 0) return DSC_ERR_INVALID_ARG;
  return dsc_broadcast(call->comm, send.data, recv.data, send.count, send.dtype, root, NULL, NULL);
}

/** Runs one operation for each array. If there are several arrays, runs them in one batch. */
static dsc_result_t for_all(call_t* call, dsc_result_t (*one)(call_t*, int64_t, int32_t), int32_t how) {
  const int64_t n = last_argument(call);
  if (n == 1) return one(call, 0, how);
  dsc_result_t code = dsc_batch_begin(call->comm);
  if (code != DSC_OK) return code;
  for (int64_t i = 0; i < n && code == DSC_OK; i++) code = one(call, i, how);
  if (code == DSC_OK) return dsc_batch_end(call->comm, NULL, NULL);
  // Runs the operations before the refused one, because other ranks may have started them. If all ranks run
  // the same program, the same operation is refused on all of them.
  char kept[MAX_TEXT];
  snprintf(kept, sizeof kept, "%s", call->problem[0] != 0 ? call->problem : dsc_last_error_message());
  const dsc_result_t ended = dsc_batch_end(call->comm, NULL, NULL);
  if (ended != DSC_OK) return ended;
  snprintf(call->problem, sizeof call->problem, "%s", kept);
  return code;
}

static dsc_result_t all_reduce(call_t* call) {
  return for_all(call, reduce_one, (int32_t)attribute(call, "op"));
}

static dsc_result_t broadcast(call_t* call) {
  return for_all(call, broadcast_one, (int32_t)attribute(call, "root"));
}

enum { FORWARD = 1, BACKWARD = 2 }; /* values of the attribute "direction" */

/** The sizes in the attributes are those of one call without vmap. Dimensions that vmap has added in front
 * multiply the outer size. */
static dsc_result_t tensor_map(call_t* call) {
  const array_t send = argument(call, 0), recv = result(call, 0);
  const size_t count = (size_t)attribute(call, "count") * send.units;
  const size_t batch = count == 0 ? 1 : send.count / count;
  const size_t outer = (size_t)attribute(call, "outer") * batch;
  const size_t dim = (size_t)attribute(call, "dim"), inner = (size_t)attribute(call, "inner") * send.units;
  const int32_t mapping = (int32_t)attribute(call, "mapping"),
                direction = (int32_t)attribute(call, "direction");
  const int sums = attribute(call, "sums") != 0;
  if (sums && send.units == 2 && send.dtype == DSC_DTYPE_U8) refuse(call, "16-bit integers cannot be summed");
  if (call->problem[0] != 0) return DSC_ERR_INVALID_ARG;
  dsc_tensor_map_options_t options;
  const dsc_result_t made = dsc_tensor_map_options_init(&options, sizeof options);
  if (made != DSC_OK) return made;
  options.mapping = mapping;
  options.outer = outer;
  options.dim = dim;
  options.inner = inner;
  if (direction == FORWARD)
    return dsc_tensor_map_forward(call->comm, &options, send.data, recv.data, send.dtype, NULL, NULL);
  if (direction != BACKWARD) return DSC_ERR_INTERNAL; /* libdsc.jax passes no other value */
  return dsc_tensor_map_backward(call->comm, &options, send.data, recv.data, send.dtype, NULL, NULL);
}

static dsc_result_t send(call_t* call) {
  const array_t x = argument(call, 0);
  const int32_t peer = (int32_t)attribute(call, "peer");
  if (call->problem[0] != 0) return DSC_ERR_INVALID_ARG;
  return dsc_send(call->comm, x.data, x.count, x.dtype, peer, NULL, NULL);
}

static dsc_result_t recv(call_t* call) {
  const array_t x = result(call, 0);
  const int32_t peer = (int32_t)attribute(call, "peer");
  if (call->problem[0] != 0) return DSC_ERR_INVALID_ARG;
  return dsc_recv(call->comm, x.data, x.count, x.dtype, peer, NULL, NULL);
}

/** Sends and receives at the same time, so that ranks that all send first do not block each other. */
static dsc_result_t send_recv(call_t* call) {
  const array_t out = argument(call, 0), in = result(call, 0);
  const int32_t dest = (int32_t)attribute(call, "dest"), source = (int32_t)attribute(call, "source");
  if (call->problem[0] != 0) return DSC_ERR_INVALID_ARG;
  size_t bytes = 0;
  dsc_result_t code = dsc_dtype_bytes(in.dtype, &bytes);
  if (code == DSC_OK) code = dsc_batch_begin(call->comm);
  if (code != DSC_OK) return code;
  if (source == NOBODY && in.count > 0) memset(in.data, 0, in.count * bytes);
  if (dest != NOBODY) code = dsc_send(call->comm, out.data, out.count, out.dtype, dest, NULL, NULL);
  if (code == DSC_OK && source != NOBODY)
    code = dsc_recv(call->comm, in.data, in.count, in.dtype, source, NULL, NULL);
  const dsc_result_t ended = dsc_batch_end(call->comm, NULL, NULL);
  return code != DSC_OK ? code : ended;
}

static dsc_result_t barrier(call_t* call) { return dsc_barrier(call->comm, NULL, NULL); }

// ---- Functions that XLA calls ----

/** Reports the version of the interface. For an older XLA this is the version of that XLA. An XLA that passes
 * no table has the oldest version. */
static void describe(const ffi_call_t* frame, ffi_metadata_t* metadata) {
  const int theirs = frame->api == NULL ? FFI_OLDEST_MINOR : frame->api->version.minor;
  metadata->version.major = FFI_MAJOR;
  metadata->version.minor = theirs < FFI_MINOR ? theirs : FFI_MINOR;
  metadata->traits = 0;
  if (metadata->struct_size >= sizeof *metadata) metadata->state_type_id = 0;
}

static ffi_error_t* run(const ffi_call_t* frame, const char* name, operation_t* operation) {
  const ffi_extension_t* extension = frame->extension;
  if (extension != NULL && extension->type == FFI_EXTENSION_METADATA) {
    describe(frame, ((const ffi_metadata_extension_t*)extension)->metadata);
    return NULL;
  }
  if (frame->stage != FFI_STAGE_EXECUTE) return NULL;
  call_t call = {.frame = frame, .name = name};
  const int64_t handle = attribute(&call, "comm");
  call.comm = (dsc_comm_t*)(uintptr_t)handle;  // an id, not an address; see docs/ownership.md
  dsc_result_t code = call.problem[0] != 0 ? DSC_ERR_INVALID_ARG : check_token(&call);
  if (code == DSC_OK) code = operation(&call);
  if (code == DSC_OK) {
    give_token(&call);
    return NULL;
  }
  if (call.problem[0] != 0) return error_of(&call, code, call.problem);
  note_failure();
  return error_of(&call, code, dsc_last_error_message());
}

#define HANDLER(operation)                                             \
  EXPORTED ffi_error_t* dsc_jax_##operation(const ffi_call_t* frame);  \
  EXPORTED ffi_error_t* dsc_jax_##operation(const ffi_call_t* frame) { \
    return run(frame, #operation, operation);                          \
  }

HANDLER(all_reduce)
HANDLER(broadcast)
HANDLER(tensor_map)
HANDLER(send)
HANDLER(recv)
HANDLER(send_recv)
HANDLER(barrier)
