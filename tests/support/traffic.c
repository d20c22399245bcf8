#include "traffic.h"

#include <stdlib.h>
#include <string.h>

#include "bounds.h"
#include "gpu.h"
#include "reference.h"

enum { GUARD = 64, SLACK = 64 * RANKS_MAX + 4 * GUARD, GUARD_BYTE = 0xa5, UNWRITTEN_BYTE = 0x5a };

const char* kind_name(kind_t kind) {
  static const char* const names[] = {
      "all_reduce", "broadcast",    "all_gather",       "reduce_scatter", "reduce",  "gather", "scatter",
      "all_to_all", "all_gather_v", "reduce_scatter_v", "all_to_all_v",   "barrier", "send",   "recv"};
  return names[kind];
}

/* Returns whether one send buffer is divided among all receivers. */
static bool divides(kind_t kind) {
  return kind == REDUCE_SCATTER || kind == REDUCE_SCATTER_V || kind == SCATTER || kind == ALL_TO_ALL ||
         kind == ALL_TO_ALL_V;
}

/* Returns whether one receive buffer collects from all senders. */
static bool collects(kind_t kind) {
  return kind == ALL_GATHER || kind == ALL_GATHER_V || kind == GATHER || kind == ALL_TO_ALL ||
         kind == ALL_TO_ALL_V;
}

bool kind_has_parts(kind_t kind) { return divides(kind) || collects(kind); }

/* Returns the number of elements that one rank sends to another. */
static size_t block_count(const operation_t* operation, int32_t from, int32_t to) {
  const uint64_t seed = operation->seed;
  switch (operation->kind) {
    case ALL_GATHER_V:
      return operation->count * ((seed + (uint64_t)from) % 4) / 3;
    case REDUCE_SCATTER_V:
      return operation->count * ((seed + (uint64_t)to) % 4) / 3;
    case ALL_TO_ALL_V:
      return operation->count * ((seed + (uint64_t)from * 2 + (uint64_t)to * 3) % 4) / 3;
    default:
      return operation->count;
  }
}

/* Returns the number of elements before the block for `to` in a send buffer, or before the block from `from`
 * in a receive buffer. */
static size_t block_start(const operation_t* operation, int32_t from, int32_t to) {
  size_t start = 0;
  if (divides(operation->kind))
    for (int32_t r = 0; r < to; ++r) start += block_count(operation, from, r);
  return start;
}

static size_t place_start(const operation_t* operation, int32_t from, int32_t to) {
  size_t start = 0;
  if (collects(operation->kind))
    for (int32_t r = 0; r < from; ++r) start += block_count(operation, r, to);
  return start;
}

int arena_open(arena_t* arena, rank_t* self, dsc_comm_t* comm, size_t bytes) {
  memset(arena, 0, sizeof *arena);
  arena->self = self;
  arena->comm = comm;
  CHECK_OK(self, dsc_comm_rank(comm, &arena->rank));
  CHECK_OK(self, dsc_comm_size(comm, &arena->size));
  arena->half = (bytes + SLACK + 4095) / 4096 * 4096;
  arena->plain = aligned_alloc(4096, 2 * arena->half);
  CHECK(self, arena->plain != NULL);
  if (gpu_wanted()) {
    arena->device = gpu_alloc(2 * arena->half);
    if (arena->device == NULL) FAIL(self, "%s", gpu_trouble());
  }
  for (int i = 0; i < 2; ++i) {
    void* memory = NULL;
    CHECK_OK(self, dsc_mem_alloc(comm, 2 * arena->half, DSC_MEMORY_KIND_HOST, &memory));
    arena->shared[i] = memory;
  }
  return 0;
}

int arena_close(arena_t* arena) {
  free(arena->plain);
  gpu_free(arena->device);
  for (int i = 0; i < 2; ++i) CHECK_OK(arena->self, dsc_mem_free(arena->shared[i]));
  return 0;
}

arena_t arena_part(const arena_t* arena, size_t index, size_t parts) {
  arena_t part = *arena;
  part.half = arena->half / parts / 4096 * 4096;
  const size_t offset = index * 2 * part.half;
  part.plain += offset;
  if (part.device != NULL) part.device += offset;
  for (int i = 0; i < 2; ++i) part.shared[i] += offset;
  return part;
}

/* On a device all buffers of an operation are of the same kind, on all ranks. */
static layout_t usual(const arena_t* arena, layout_t layout) {
  const bool mixed = layout == SEND_SHARED || layout == RECV_SHARED || layout == SOME_RANKS_SHARED;
  return arena->device != NULL && mixed ? PLAIN : layout;
}

static bool reduces(kind_t kind) {
  return kind == ALL_REDUCE || kind == REDUCE || kind == REDUCE_SCATTER || kind == REDUCE_SCATTER_V;
}

/* A device can reduce only buffers that are aligned to their elements. */
static size_t least_alignment(const arena_t* arena, const operation_t* operation) {
  return arena->device != NULL && reduces(operation->kind) ? element_bytes(operation->dtype) : 1;
}

static void place(const arena_t* arena, layout_t layout, size_t alignment, char** send, char** recv) {
  const bool odd = arena->rank % 2 != 0;
  char* send_memory = arena->plain;
  char* recv_memory = arena->plain;
  if (layout >= SHARED && layout <= SEND_SHARED) send_memory = arena->shared[0];
  if (layout >= SHARED && layout <= SHARED_MISALIGNED) recv_memory = arena->shared[0];
  if (layout == SHARED_TWO_PIECES || layout == RECV_SHARED) recv_memory = arena->shared[1];
  if (layout == SOME_RANKS_SHARED && !odd) send_memory = recv_memory = arena->shared[0];
  if (layout == PIECES_DIFFER) send_memory = recv_memory = arena->shared[odd];
  size_t offset = GUARD;
  if (layout == SHARED_OFFSETS) offset += (size_t)arena->rank * 64;
  const size_t shift = 1 + (size_t)(arena->rank * 20) % 63;
  if (layout == PLAIN_MISALIGNED) offset += (shift + alignment - 1) / alignment * alignment;
  if (layout == SHARED_MISALIGNED) offset += shift;
  const size_t recv_shift = layout == SHARED_MISALIGNED ? 5 : 0;
  *send = send_memory + offset;
  *recv = recv_memory + arena->half + offset + recv_shift;
}

static bool in_place(const operation_t* operation) {
  return (operation->layout == PLAIN_IN_PLACE || operation->layout == SHARED_IN_PLACE) &&
         operation->kind != ALL_TO_ALL_V;
}

static bool has_send(const arena_t* arena, const operation_t* operation) {
  if (operation->kind == BARRIER || operation->kind == RECV) return false;
  return (operation->kind != BROADCAST && operation->kind != SCATTER) || arena->rank == operation->root;
}

static bool has_recv(const arena_t* arena, const operation_t* operation) {
  if (operation->kind == BARRIER || operation->kind == SEND) return false;
  return (operation->kind != REDUCE && operation->kind != GATHER) || arena->rank == operation->root;
}

/* Returns whether the receive buffer is a part of the send buffer. */
static bool is_inside(const operation_t* operation, const buffers_t* buffers) {
  return in_place(operation) && buffers->send != NULL && buffers->recv != NULL && divides(operation->kind) &&
         operation->kind != ALL_TO_ALL;
}

static void fill_buffer(char* buffer, size_t bytes) {
  memset(buffer - GUARD, GUARD_BYTE, GUARD);
  memset(buffer, UNWRITTEN_BYTE, bytes);
  memset(buffer + bytes, GUARD_BYTE, GUARD);
}

static size_t send_count(const arena_t* arena, const operation_t* operation) {
  return divides(operation->kind) ? block_start(operation, arena->rank, arena->size)
                                  : block_count(operation, arena->rank, arena->rank);
}

static size_t recv_count(const arena_t* arena, const operation_t* operation) {
  return collects(operation->kind) ? place_start(operation, arena->size, arena->rank)
                                   : block_count(operation, arena->rank, arena->rank);
}

static buffers_t prepare_on_host(const arena_t* arena, const operation_t* operation) {
  const size_t bytes = element_bytes(operation->dtype);
  buffers_t buffers = {NULL, NULL, 0, 0};
  char *send, *recv;
  place(arena, usual(arena, operation->layout), least_alignment(arena, operation), &send, &recv);
  if (has_recv(arena, operation)) {
    buffers.recv_bytes = recv_count(arena, operation) * bytes;
    buffers.recv = recv;
    fill_buffer(recv, buffers.recv_bytes);
  }
  if (!has_send(arena, operation)) return buffers;
  buffers.send_bytes = send_count(arena, operation) * bytes;
  buffers.send = send;
  if (in_place(operation) && buffers.recv != NULL)
    buffers.send = collects(operation->kind) && !divides(operation->kind)
                       ? recv + place_start(operation, arena->rank, arena->rank) * bytes
                       : recv;
  if (is_inside(operation, &buffers))
    buffers.recv = recv + block_start(operation, arena->rank, arena->rank) * bytes;
  if (buffers.send == send || is_inside(operation, &buffers)) fill_buffer(buffers.send, buffers.send_bytes);
  fill_elements(buffers.send, 0, buffers.send_bytes / bytes, operation->dtype,
                operation->seed + (uint64_t)arena->rank);
  return buffers;
}

static bool on_device(const arena_t* arena, const operation_t* operation) {
  return arena->device != NULL && usual(arena, operation->layout) < SHARED;
}

bool is_offered(const arena_t* arena, const operation_t* operation) {
  if (!op_is_offered(operation->op, operation->dtype)) return false;
  if (!on_device(arena, operation) || operation->op < DSC_OP_BAND) return true;
  return operation->dtype == DSC_DTYPE_BOOL && operation->op != DSC_OP_BXOR;
}

static char* moved(char* buffer, const char* from, char* to) {
  return buffer == NULL ? NULL : to + (buffer - from);
}

/* Returns the corresponding buffers in the mirror, or those of the mirror's originals. */
static buffers_t mirrored(const arena_t* arena, const buffers_t* buffers, bool to_device) {
  buffers_t other = *buffers;
  char* const from = to_device ? arena->plain : arena->device;
  char* const to = to_device ? arena->device : arena->plain;
  other.send = moved(buffers->send, from, to);
  other.recv = moved(buffers->recv, from, to);
  return other;
}

/* Copies the buffers and the guards around them to or from the mirror. */
static bool synchronize(const arena_t* arena, const buffers_t* here, bool to_device) {
  char* const starts[] = {here->send, here->recv};
  const size_t bytes[] = {here->send_bytes, here->recv_bytes};
  for (int i = 0; i < 2; ++i) {
    if (starts[i] == NULL) continue;
    char* const host = starts[i] - GUARD;
    char* const device = arena->device + (host - arena->plain);
    const size_t all = bytes[i] + 2 * GUARD;
    if (to_device ? !gpu_upload(device, host, all) : !gpu_download(host, device, all)) return false;
  }
  return true;
}

buffers_t prepare(const arena_t* arena, const operation_t* operation) {
  const buffers_t buffers = prepare_on_host(arena, operation);
  if (!on_device(arena, operation)) return buffers;
  if (!synchronize(arena, &buffers, true)) abort();
  return mirrored(arena, &buffers, true);
}

static dsc_result_t call_v(dsc_comm_t* comm, const operation_t* operation, const buffers_t* buffers,
                           dsc_work_t** work) {
  int32_t rank = 0, size = 0;
  dsc_comm_rank(comm, &rank);
  dsc_comm_size(comm, &size);
  size_t sent[RANKS_MAX], received[RANKS_MAX]; /* invalid after the call has returned */
  for (int32_t r = 0; r < size; ++r) {
    sent[r] = block_count(operation, rank, r);
    received[r] = block_count(operation, r, rank);
  }
  if (operation->kind == ALL_GATHER_V)
    return dsc_all_gather_v(comm, buffers->send, buffers->recv, received, operation->dtype, NULL, work);
  if (operation->kind == REDUCE_SCATTER_V)
    return dsc_reduce_scatter_v(comm, buffers->send, buffers->recv, sent, operation->dtype, operation->op,
                                NULL, work);
  return dsc_all_to_all_v(comm, buffers->send, sent, buffers->recv, received, operation->dtype, NULL, work);
}

static dsc_result_t call_once(dsc_comm_t* comm, const operation_t* operation, const buffers_t* buffers,
                              dsc_work_t** work) {
  const size_t count = operation->count;
  const dsc_dtype_t dtype = operation->dtype;
  switch (operation->kind) {
    case ALL_REDUCE:
      return dsc_all_reduce(comm, buffers->send, buffers->recv, count, dtype, operation->op, NULL, work);
    case BROADCAST:
      return dsc_broadcast(comm, buffers->send, buffers->recv, count, dtype, operation->root, NULL, work);
    case ALL_GATHER:
      return dsc_all_gather(comm, buffers->send, buffers->recv, count, dtype, NULL, work);
    case REDUCE_SCATTER:
      return dsc_reduce_scatter(comm, buffers->send, buffers->recv, count, dtype, operation->op, NULL, work);
    case REDUCE:
      return dsc_reduce(comm, buffers->send, buffers->recv, count, dtype, operation->op, operation->root,
                        NULL, work);
    case GATHER:
      return dsc_gather(comm, buffers->send, buffers->recv, count, dtype, operation->root, NULL, work);
    case SCATTER:
      return dsc_scatter(comm, buffers->send, buffers->recv, count, dtype, operation->root, NULL, work);
    case ALL_TO_ALL:
      return dsc_all_to_all(comm, buffers->send, buffers->recv, count, dtype, NULL, work);
    case ALL_GATHER_V:
    case REDUCE_SCATTER_V:
    case ALL_TO_ALL_V:
      return call_v(comm, operation, buffers, work);
    case SEND:
      return dsc_send(comm, buffers->send, count, dtype, operation->root, NULL, work);
    case RECV:
      return dsc_recv(comm, buffers->recv, count, dtype, operation->root, NULL, work);
    default:
      return dsc_barrier(comm, NULL, work);
  }
}

/* On a device a call without a work returns before the operation is done, so this waits for the default
 * stream. */
dsc_result_t call(dsc_comm_t* comm, const operation_t* operation, const buffers_t* buffers,
                  dsc_work_t** work) {
  const dsc_result_t result = call_once(comm, operation, buffers, work);
  if (gpu_wanted() && result == DSC_OK && work == NULL && !gpu_synchronize(NULL)) abort();
  return result;
}

static void expect_output(const arena_t* arena, const operation_t* operation, char* expected) {
  const size_t bytes = element_bytes(operation->dtype);
  const uint64_t seed = operation->seed;
  const int32_t me = arena->rank;
  switch (operation->kind) {
    case ALL_REDUCE:
    case REDUCE:
    case REDUCE_SCATTER:
    case REDUCE_SCATTER_V:
      reduce_reference(expected, block_start(operation, me, me), block_count(operation, me, me),
                       operation->dtype, operation->op, seed, arena->size);
      return;
    case BROADCAST:
    case SCATTER:
    case RECV:
      fill_elements(expected, block_start(operation, operation->root, me),
                    block_count(operation, operation->root, me), operation->dtype,
                    seed + (uint64_t)operation->root);
      return;
    case BARRIER:
    case SEND:
    case KINDS:
      return;
    default:
      for (int32_t r = 0; r < arena->size; ++r)
        fill_elements(expected + place_start(operation, r, me) * bytes, block_start(operation, r, me),
                      block_count(operation, r, me), operation->dtype, seed + (uint64_t)r);
  }
}

static int compare(const arena_t* arena, const operation_t* operation, const char* what, const char* came,
                   const char* expected, size_t bytes) {
  if (bytes == 0 || memcmp(came, expected, bytes) == 0) return 0;
  size_t at = 0;
  while (came[at] == expected[at]) ++at;
  FAIL(arena->self, "%s of %s differs at byte %zu of %zu (%s, %s, root %d, layout %d, rank %d of %d)", what,
       kind_name(operation->kind), at, bytes, dsc_dtype_name(operation->dtype), dsc_op_name(operation->op),
       operation->root, operation->layout, arena->rank, arena->size);
}

static int check_guards(const arena_t* arena, const operation_t* operation, const char* buffer,
                        size_t bytes) {
  char guard[GUARD];
  memset(guard, GUARD_BYTE, GUARD);
  PASS_ON(compare(arena, operation, "the memory before a buffer", buffer - GUARD, guard, GUARD));
  return compare(arena, operation, "the memory behind a buffer", buffer + bytes, guard, GUARD);
}

/* Checks that the send buffer is unchanged. In place, the part that was written is left out. */
static int check_send(const arena_t* arena, const operation_t* operation, const buffers_t* buffers,
                      char* expected, bool written) {
  if (buffers->send == NULL) return 0;
  const size_t bytes = element_bytes(operation->dtype);
  fill_elements(expected, 0, buffers->send_bytes / bytes, operation->dtype,
                operation->seed + (uint64_t)arena->rank);
  if (!written || !in_place(operation) || buffers->recv == NULL) {
    return compare(arena, operation, "the input", buffers->send, expected, buffers->send_bytes);
  }
  if (!is_inside(operation, buffers)) return 0;
  memcpy(expected + (buffers->recv - buffers->send), buffers->recv, buffers->recv_bytes);
  return compare(arena, operation, "another part of the input", buffers->send, expected, buffers->send_bytes);
}

static int check_buffers(const arena_t* arena, const operation_t* operation, const buffers_t* buffers,
                         char* scratch, bool written) {
  const bool inside = is_inside(operation, buffers);
  if (buffers->recv != NULL && !inside)
    PASS_ON(check_guards(arena, operation, buffers->recv, buffers->recv_bytes));
  if (buffers->send != NULL && (inside || !in_place(operation) || buffers->recv == NULL))
    PASS_ON(check_guards(arena, operation, buffers->send, buffers->send_bytes));
  return check_send(arena, operation, buffers, scratch, written);
}

static char* allocate_scratch(const buffers_t* buffers) {
  char* scratch = malloc(buffers->send_bytes + buffers->recv_bytes + 1);
  if (scratch == NULL) abort();
  return scratch;
}

static int compare_roughly(const arena_t* arena, const operation_t* operation, const char* came,
                           size_t bytes) {
  const size_t first = block_start(operation, arena->rank, arena->rank);
  const size_t count = bytes / element_bytes(operation->dtype);
  stray_t stray;
  if (is_within_bounds(came, first, count, operation->dtype, operation->op, operation->seed, arena->size,
                       &stray))
    return 0;
  FAIL(arena->self,
       "element %zu of %zu of %s is %.17g, expected %.17g within %.3g (%s, %s, layout %d, rank %d of %d)",
       stray.at, count, kind_name(operation->kind), stray.came, stray.expected, stray.bound,
       dsc_dtype_name(operation->dtype), dsc_op_name(operation->op), operation->layout, arena->rank,
       arena->size);
}

static int check_output(const arena_t* arena, const operation_t* operation, const buffers_t* buffers,
                        char* scratch, bool roughly) {
  if (buffers->recv == NULL) return 0;
  if (roughly && reduces(operation->kind) && has_bounds(operation->op, operation->dtype))
    return compare_roughly(arena, operation, buffers->recv, buffers->recv_bytes);
  expect_output(arena, operation, scratch);
  return compare(arena, operation, "the output", buffers->recv, scratch, buffers->recv_bytes);
}

static int verify_written(const arena_t* arena, const operation_t* operation, const buffers_t* buffers,
                          bool roughly) {
  char* scratch = allocate_scratch(buffers);
  int failed = check_output(arena, operation, buffers, scratch, roughly);
  if (failed == 0) failed = check_buffers(arena, operation, buffers, scratch, true);
  free(scratch);
  return failed;
}

static int verify_on_host(const arena_t* arena, const operation_t* operation, const buffers_t* buffers) {
  return verify_written(arena, operation, buffers, on_device(arena, operation) && gpu_is_real());
}

static int verify_roughly_on_host(const arena_t* arena, const operation_t* operation,
                                  const buffers_t* buffers) {
  return verify_written(arena, operation, buffers, true);
}

static int verify_untouched_on_host(const arena_t* arena, const operation_t* operation,
                                    const buffers_t* buffers) {
  char* scratch = allocate_scratch(buffers);
  int failed = check_buffers(arena, operation, buffers, scratch, false);
  if (failed == 0 && buffers->recv != NULL && !(in_place(operation) && buffers->send != NULL)) {
    memset(scratch, UNWRITTEN_BYTE, buffers->recv_bytes);
    failed = compare(arena, operation, "an output that must not be written", buffers->recv, scratch,
                     buffers->recv_bytes);
  }
  free(scratch);
  return failed;
}

typedef int (*verify_t)(const arena_t* arena, const operation_t* operation, const buffers_t* buffers);

static int verify_anywhere(const arena_t* arena, const operation_t* operation, const buffers_t* buffers,
                           verify_t on_host) {
  if (!on_device(arena, operation)) return on_host(arena, operation, buffers);
  const buffers_t here = mirrored(arena, buffers, false);
  if (!synchronize(arena, &here, false)) FAIL(arena->self, "%s", gpu_trouble());
  return on_host(arena, operation, &here);
}

int verify(const arena_t* arena, const operation_t* operation, const buffers_t* buffers) {
  return verify_anywhere(arena, operation, buffers, verify_on_host);
}

int verify_within_bounds(const arena_t* arena, const operation_t* operation, const buffers_t* buffers) {
  return verify_anywhere(arena, operation, buffers, verify_roughly_on_host);
}

int verify_untouched(const arena_t* arena, const operation_t* operation, const buffers_t* buffers) {
  return verify_anywhere(arena, operation, buffers, verify_untouched_on_host);
}

int check_operation(const arena_t* arena, const operation_t* operation) {
  const buffers_t buffers = prepare(arena, operation);
  const dsc_result_t result = call(arena->comm, operation, &buffers, NULL);
  if (result != DSC_OK)
    FAIL(arena->self, "%s of %zu %s, layout %d: %s", kind_name(operation->kind), operation->count,
         dsc_dtype_name(operation->dtype), operation->layout, dsc_last_error_message());
  return verify(arena, operation, &buffers);
}
