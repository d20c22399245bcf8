/* Messages between two ranks: every size and layout, both directions at the same time, in order. */
#include <string.h>

#include "cmocka_c.h"
#include "gpu.h"
#include "reference.h"
#include "traffic.h"

enum { KIB = 1024, MIB = 1024 * KIB };

#define LENGTH(array) (sizeof(array) / sizeof(array)[0])

/* Sizes near these limits: 104 bytes are sent with the call itself; from 16 KiB on data is read in place;
 * chunks have 64 KiB, two of them at a time; pieces that are read in place have 512 KiB. */
static const size_t sizes[] = {0,
                               1,
                               7,
                               104,
                               105,
                               1000,
                               16 * KIB - 1,
                               16 * KIB,
                               64 * KIB,
                               64 * KIB + 1,
                               128 * KIB,
                               192 * KIB,
                               512 * KIB,
                               513 * KIB,
                               3 * MIB + 5};

static int wait_for(rank_t* self, dsc_work_t* work) {
  CHECK_OK(self, dsc_work_wait(work, -1, NULL));
  CHECK_OK(self, dsc_work_destroy(work));
  return 0;
}

typedef struct exchange {
  operation_t send;
  operation_t recv;
  buffers_t send_buffers;
  buffers_t recv_buffers;
} exchange_t;

static exchange_t prepare_exchange(const arena_t* arena, size_t bytes, layout_t layout, uint64_t seed,
                                   int32_t to, int32_t from) {
  exchange_t it;
  if (gpu_wanted()) layout = PLAIN; /* both ends must use the same kind of memory */
  it.send = (operation_t){
      .kind = SEND, .dtype = DSC_DTYPE_U8, .root = to, .count = bytes, .layout = layout, .seed = seed};
  it.recv = it.send;
  it.recv.kind = RECV;
  it.recv.root = from;
  it.send_buffers = prepare(arena, &it.send);
  it.recv_buffers = prepare(arena, &it.recv);
  return it;
}

static int verify_exchange(const arena_t* arena, const exchange_t* it) {
  PASS_ON(verify(arena, &it->send, &it->send_buffers));
  return verify(arena, &it->recv, &it->recv_buffers);
}

/* Every rank receives from its left neighbor and sends to its right one. With two ranks both are the same
 * peer. */
static int ring(const arena_t* arena, size_t bytes, layout_t layout, uint64_t seed) {
  rank_t* self = arena->self;
  const int32_t right = (arena->rank + 1) % arena->size;
  const int32_t left = (arena->rank + arena->size - 1) % arena->size;
  const exchange_t it = prepare_exchange(arena, bytes, layout, seed, right, left);
  dsc_work_t *sending = NULL, *receiving = NULL;
  if (seed % 2 == 0) {
    CHECK_OK(self, call(arena->comm, &it.recv, &it.recv_buffers, &receiving));
    CHECK_OK(self, call(arena->comm, &it.send, &it.send_buffers, &sending));
  } else {
    CHECK_OK(self, call(arena->comm, &it.send, &it.send_buffers, &sending));
    CHECK_OK(self, call(arena->comm, &it.recv, &it.recv_buffers, &receiving));
  }
  PASS_ON(wait_for(self, sending));
  PASS_ON(wait_for(self, receiving));
  return verify_exchange(arena, &it);
}

static int ring_body(rank_t* self) {
  arena_t arena;
  PASS_ON(arena_open(&arena, self, self->world, 3 * MIB + 8));
  uint64_t seed = 1;
  for (size_t i = 0; i < LENGTH(sizes) && sizes[i] <= 4 * MIB / test_scale(); ++i)
    for (int layout = 0; layout < LAYOUTS; ++layout, ++seed)
      PASS_ON(ring(&arena, sizes[i], (layout_t)layout, seed + (layout & 1)));
  return arena_close(&arena);
}

static void ring_both_ways(void** state) {
  (void)state;
  for (int32_t size = 2; size <= 4; ++size) assert_int_equal(run_ranks(size, ring_body, NULL), 0);
}

/* Blocking calls, one direction after the other. */
static int ping_pong_body(rank_t* self) {
  arena_t arena;
  PASS_ON(arena_open(&arena, self, self->world, 3 * MIB + 8));
  const int32_t peer = 1 - self->rank;
  for (size_t i = 0; i < LENGTH(sizes) && sizes[i] <= 4 * MIB / test_scale(); ++i)
    for (int layout = 0; layout < LAYOUTS; ++layout) {
      const exchange_t it = prepare_exchange(&arena, sizes[i], (layout_t)layout, i, peer, peer);
      if (self->rank == 0) CHECK_OK(self, call(self->world, &it.send, &it.send_buffers, NULL));
      CHECK_OK(self, call(self->world, &it.recv, &it.recv_buffers, NULL));
      if (self->rank == 1) CHECK_OK(self, call(self->world, &it.send, &it.send_buffers, NULL));
      PASS_ON(verify_exchange(&arena, &it));
    }
  return arena_close(&arena);
}

static void ping_pong(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, ping_pong_body, NULL), 0);
}

/* The sender of a short message does not wait until it was read, so later messages of any length must not
 * overwrite it. Either rank may be slower at any time. */
static int stream_body(rank_t* self) {
  static const size_t lengths[] = {4,        104, 105, 0,       8 * KIB - 1,   8 * KIB, 1000,
                                   64 * KIB, 4,   4,   3 * KIB, 128 * KIB + 1, 105,     104};
  arena_t arena;
  PASS_ON(arena_open(&arena, self, self->world, 136 * KIB));
  uint64_t random = 7;
  const uint64_t messages = (uint64_t)scaled_repetitions(1400, 16, 80);
  for (uint64_t i = 0; i < messages; ++i) {
    const size_t bytes = lengths[next_random(&random) % LENGTH(lengths)];
    const exchange_t it = prepare_exchange(&arena, bytes, PLAIN, i, 1, 0);
    if (self->rank == 0) {
      CHECK_OK(self, call(self->world, &it.send, &it.send_buffers, NULL));
    } else {
      CHECK_OK(self, call(self->world, &it.recv, &it.recv_buffers, NULL));
      PASS_ON(verify(&arena, &it.recv, &it.recv_buffers));
    }
  }
  return arena_close(&arena);
}

static void short_among_long(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, stream_body, NULL), 0);
}

/* All pairs of ranks at the same time, several messages each: the n-th send matches the n-th receive. */
enum { ROUNDS = 8, ALL_RANKS = 4, PARTS = ROUNDS * ALL_RANKS };

static int all_pairs_body(rank_t* self) {
  arena_t arena;
  PASS_ON(arena_open(&arena, self, self->world, PARTS * 24 * KIB));
  exchange_t exchanges[PARTS];
  dsc_work_t* works[PARTS][2] = {{NULL}};
  for (int i = 0; i < PARTS; ++i) {
    const int32_t peer = i % ALL_RANKS;
    const arena_t part = arena_part(&arena, (size_t)i, PARTS);
    if (peer == self->rank) continue;
    const size_t bytes = (size_t)(i / ALL_RANKS) * 2500;
    exchanges[i] =
        prepare_exchange(&part, bytes, (layout_t)(i % LAYOUTS), (uint64_t)(i / 4 * 97), peer, peer);
    exchange_t* it = &exchanges[i];
    CHECK_OK(self, call(self->world, &it->send, &it->send_buffers, &works[i][0]));
    CHECK_OK(self, call(self->world, &it->recv, &it->recv_buffers, &works[i][1]));
  }
  for (int i = PARTS - 1; i >= 0; --i) {
    if (works[i][0] == NULL) continue;
    const arena_t part = arena_part(&arena, (size_t)i, PARTS);
    PASS_ON(wait_for(self, works[i][i & 1]));
    PASS_ON(wait_for(self, works[i][1 - (i & 1)]));
    PASS_ON(verify_exchange(&part, &exchanges[i]));
  }
  return arena_close(&arena);
}

static void all_pairs_in_order(void** state) {
  (void)state;
  assert_int_equal(run_ranks(ALL_RANKS, all_pairs_body, NULL), 0);
}

/* A send of one byte is not complete before its receive was called. */
static int rendezvous_body(rank_t* self) {
  char byte = 'x';
  if (self->rank == 1) {
    CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
    CHECK_OK(self, dsc_recv(self->world, &byte, 1, DSC_DTYPE_U8, 0, NULL, NULL));
    return 0;
  }
  dsc_work_t* work = NULL;
  CHECK_OK(self, dsc_send(self->world, &byte, 1, DSC_DTYPE_U8, 1, NULL, &work));
  CHECK_RESULT(self, DSC_IN_PROGRESS, dsc_work_wait(work, 30, NULL));
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL)); /* collectives are not blocked by a waiting message */
  return wait_for(self, work);
}

static void rendezvous(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, rendezvous_body, NULL), 0);
}

/* If count or type differ, both ends get an error that names both ends. */
static int unequal_ends_body(rank_t* self) {
  const bool other_type = *(const bool*)self->arg;
  char memory[64];
  memset(memory, 9, sizeof memory);
  const dsc_dtype_t dtype = other_type ? DSC_DTYPE_I8 : DSC_DTYPE_U8;
  if (self->rank == 0)
    CHECK_RESULT(self, DSC_ERR_MISMATCH, dsc_send(self->world, memory, 64, DSC_DTYPE_U8, 1, NULL, NULL));
  else
    CHECK_RESULT(self, DSC_ERR_MISMATCH,
                 dsc_recv(self->world, memory, other_type ? 64 : 63, dtype, 0, NULL, NULL));
  const char* text = dsc_last_error_message();
  CHECK(self, strncmp(text, self->rank == 0 ? "dsc_send: " : "dsc_recv: ", 10) == 0);
  CHECK(self, strstr(text, "rank 0: send(to 1, u8, 64)") != NULL);
  CHECK(self,
        strstr(text, other_type ? "rank 1: recv(from 0, i8, 64)" : "rank 1: recv(from 0, u8, 63)") != NULL);
  for (size_t i = 0; i < sizeof memory; ++i) CHECK(self, memory[i] == 9);
  CHECK_RESULT(self, DSC_ERR_REVOKED, dsc_barrier(self->world, NULL, NULL));
  return 0;
}

static void unequal_ends(void** state) {
  (void)state;
  for (int i = 0; i < 2; ++i) {
    const bool other_type = i == 1;
    assert_int_equal(run_ranks(2, unequal_ends_body, &other_type), 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ring_both_ways), cmocka_unit_test(ping_pong),    cmocka_unit_test(all_pairs_in_order),
      cmocka_unit_test(rendezvous),     cmocka_unit_test(unequal_ends), cmocka_unit_test(short_among_long),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
