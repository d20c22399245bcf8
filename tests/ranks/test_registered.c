/* Memory of the program that dsc_mem_register() made reachable for the other ranks. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "census.h"
#include "cmocka_c.h"
#include "ranks.h"

enum { COUNT = 90000, EDGE = 64, GUARD = 0x5a };

/* An array somewhere in a larger block, whose other bytes nobody may change. */
typedef struct array {
  unsigned char* block;
  size_t at, bytes;
} array_t;

/* Every rank gets another position in its page, so that the ends differ between ranks. */
static int array_open(array_t* it, const rank_t* self, size_t count) {
  it->at = EDGE + 40 * (size_t)self->rank + 4;
  it->bytes = count * sizeof(float);
  it->block = malloc(it->at + it->bytes + EDGE);
  if (it->block != NULL) memset(it->block, GUARD, it->at + it->bytes + EDGE);
  return it->block == NULL ? 1 : 0;
}

static float* data_of(const array_t* it) { return (float*)(void*)(it->block + it->at); }

static bool is_intact(const array_t* it) {
  for (size_t i = 0; i < it->at; ++i)
    if (it->block[i] != GUARD) return false;
  for (size_t i = 0; i < EDGE; ++i)
    if (it->block[it->at + it->bytes + i] != GUARD) return false;
  return true;
}

static void array_close(array_t* it) { free(it->block); }

static float value_at(int32_t rank, size_t i) { return (float)((i * 7 + (size_t)rank * 1000) % 4099); }

static void fill(float* data, int32_t rank, size_t count) {
  for (size_t i = 0; i < count; ++i) data[i] = value_at(rank, i);
}

/* Returns whether the world's trace shows that its last operation took a path. */
static bool last_path_is(const rank_t* self, const char* path) {
  static const char key[] = "\"algorithm\":";
  size_t needed = 0;
  if (dsc_trace_json(self->world, NULL, 0, &needed) < 0) return false;
  needed += 65536; /* for what the next call adds */
  char* const text = malloc(needed);
  bool same = false;
  if (text != NULL && dsc_trace_json(self->world, text, needed, &needed) == DSC_OK) {
    const char* last = NULL;
    for (const char* at = text; (at = strstr(at, key)) != NULL; at += sizeof key) last = at;
    const char* const name = last == NULL ? "" : strchr(last, ':') + 1 + strspn(strchr(last, ':') + 1, " \"");
    same = strncmp(name, path, strlen(path)) == 0;
  }
  free(text);
  return same;
}

/* A path of operations on one host only; there are others between hosts. */
#define CHECK_PATH(self, path)                                                                    \
  do {                                                                                            \
    if (!ranks_are_on_several_hosts() && (self)->size > 1) CHECK(self, last_path_is(self, path)); \
  } while (0)

static int check_sums(rank_t* self, const float* got, size_t first, size_t count) {
  for (size_t i = first; i < first + count; ++i) {
    float sum = 0;
    for (int32_t rank = 0; rank < self->size; ++rank) sum += value_at(rank, i);
    if (got[i - first] != sum)
      FAIL(self, "element %zu is %g, expected %g", i, (double)got[i - first], (double)sum);
  }
  return 0;
}

static int check_values(rank_t* self, const float* got, int32_t rank, size_t first, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (got[i] != value_at(rank, first + i))
      FAIL(self, "element %zu of rank %d is %g, expected %g", first + i, rank, (double)got[i],
           (double)value_at(rank, first + i));
  return 0;
}

/* Sends around a ring. `path` is null if the path is that of ordinary memory, which depends on the machine.
 */
static int pass_on(rank_t* self, float* send, float* recv, size_t count, const char* path) {
  const int32_t right = (self->rank + 1) % self->size, left = (self->rank + self->size - 1) % self->size;
  dsc_work_t* work = NULL;
  fill(send, self->rank, count);
  CHECK_OK(self, dsc_send(self->world, send, count, DSC_DTYPE_F32, right, NULL, &work));
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL)); /* every send has begun before a receive */
  CHECK_OK(self, dsc_recv(self->world, recv, count, DSC_DTYPE_F32, left, NULL, NULL));
  CHECK_OK(self, dsc_work_synchronize(work, -1));
  CHECK_OK(self, dsc_work_destroy(work));
  if (path != NULL) CHECK_PATH(self, path);
  return check_values(self, recv, left, 0, count);
}

/* `send` has COUNT elements and `recv` `size` times as many. */
static int run_all(rank_t* self, float* send, float* recv) {
  const int32_t right = (self->rank + 1) % self->size, left = (self->rank + self->size - 1) % self->size;
  const size_t part = COUNT / (size_t)self->size;
  fill(send, self->rank, COUNT);
  CHECK_OK(self, dsc_all_reduce(self->world, send, recv, COUNT, DSC_DTYPE_F32, DSC_OP_SUM, NULL, NULL));
  PASS_ON(check_sums(self, recv, 0, COUNT));
  CHECK_OK(self,
           dsc_reduce(self->world, send, recv, COUNT, DSC_DTYPE_F32, DSC_OP_SUM, self->size - 1, NULL, NULL));
  if (self->rank == self->size - 1) PASS_ON(check_sums(self, recv, 0, COUNT));
  CHECK_OK(self, dsc_reduce_scatter(self->world, send, recv, part, DSC_DTYPE_F32, DSC_OP_SUM, NULL, NULL));
  PASS_ON(check_sums(self, recv, (size_t)self->rank * part, part));
  CHECK_OK(self, dsc_all_gather(self->world, send, recv, COUNT, DSC_DTYPE_F32, NULL, NULL));
  for (int32_t rank = 0; rank < self->size; ++rank)
    PASS_ON(check_values(self, recv + (size_t)rank * COUNT, rank, 0, COUNT));
  CHECK_OK(self, dsc_all_to_all(self->world, send, recv, part, DSC_DTYPE_F32, NULL, NULL));
  for (int32_t rank = 0; rank < self->size; ++rank)
    PASS_ON(check_values(self, recv + (size_t)rank * part, rank, (size_t)self->rank * part, part));
  CHECK_OK(self, dsc_gather(self->world, send, recv, COUNT, DSC_DTYPE_F32, 0, NULL, NULL));
  for (int32_t rank = 0; self->rank == 0 && rank < self->size; ++rank)
    PASS_ON(check_values(self, recv + (size_t)rank * COUNT, rank, 0, COUNT));
  if (self->size > 1) {
    dsc_work_t* work = NULL;
    CHECK_OK(self, dsc_send(self->world, send, COUNT, DSC_DTYPE_F32, right, NULL, &work));
    CHECK_OK(self, dsc_recv(self->world, recv, COUNT, DSC_DTYPE_F32, left, NULL, NULL));
    CHECK_OK(self, dsc_work_synchronize(work, -1));
    CHECK_OK(self, dsc_work_destroy(work));
    PASS_ON(check_values(self, recv, left, 0, COUNT));
  }
  float* const gathered = self->rank == 0 ? recv : send; /* in place on the root */
  fill(gathered, self->rank, COUNT);
  CHECK_OK(self, dsc_gather(self->world, gathered, recv, COUNT, DSC_DTYPE_F32, 0, NULL, NULL));
  for (int32_t rank = 0; self->rank == 0 && rank < self->size; ++rank)
    PASS_ON(check_values(self, recv + (size_t)rank * COUNT, rank, 0, COUNT));
  fill(send, self->rank, COUNT);
  CHECK_OK(self, dsc_broadcast(self->world, send, recv, COUNT, DSC_DTYPE_F32, self->size - 1, NULL, NULL));
  PASS_ON(check_values(self, recv, self->size - 1, 0, COUNT));
  CHECK_OK(self, dsc_broadcast(self->world, send, send, COUNT, DSC_DTYPE_F32, 0, NULL, NULL));
  PASS_ON(check_values(self, send, 0, 0, COUNT));
  fill(send, self->rank, COUNT);
  CHECK_OK(self, dsc_all_reduce(self->world, send, send, COUNT, DSC_DTYPE_F32, DSC_OP_SUM, NULL, NULL));
  return check_sums(self, send, 0, COUNT);
}

static int operations_body(rank_t* self) {
  array_t send, recv;
  CHECK(self,
        array_open(&send, self, COUNT) == 0 && array_open(&recv, self, COUNT * (size_t)self->size) == 0);
  fill(data_of(&send), self->rank, COUNT);
  CHECK_OK(self, dsc_mem_register(self->world, data_of(&send), send.bytes));
  CHECK_OK(self, dsc_mem_register(self->world, data_of(&recv), recv.bytes));
  PASS_ON(check_values(self, data_of(&send), self->rank, 0, COUNT));
  PASS_ON(run_all(self, data_of(&send), data_of(&recv)));
  CHECK_PATH(self, "zero_copy");
  /* parts of the memory, with ends inside it */
  fill(data_of(&send), self->rank, COUNT);
  for (size_t first = 0; first < 2 * 1031; first += 1031) {
    const size_t count = COUNT - 1500 - first;
    CHECK_OK(self, dsc_all_reduce(self->world, data_of(&send) + first, data_of(&recv) + first + 3, count,
                                  DSC_DTYPE_F32, DSC_OP_SUM, NULL, NULL));
    PASS_ON(check_sums(self, data_of(&recv) + first + 3, first, count));
  }
  CHECK_PATH(self, "zero_copy");
  /* both buffers in one array; with more data, the root is in place */
  for (size_t count = 5000; count < COUNT; count *= 14) {
    float* const all = data_of(&recv);
    float* const own = count == 5000 ? all + (size_t)self->size * count : all;
    fill(own, self->rank, count);
    CHECK_OK(self, dsc_gather(self->world, own, all, count, DSC_DTYPE_F32, 0, NULL, NULL));
    CHECK_PATH(self, "zero_copy");
    for (int32_t rank = 0; self->rank == 0 && rank < self->size; ++rank)
      PASS_ON(check_values(self, all + (size_t)rank * count, rank, 0, count));
    if (self->size > 1)
      PASS_ON(pass_on(self, all + COUNT * (size_t)self->size - count, all, count, "zero_copy"));
  }
  /* one rank less: the others still share their part */
  if (self->rank == 0) CHECK_OK(self, dsc_mem_unregister(data_of(&send)));
  PASS_ON(run_all(self, data_of(&send), data_of(&recv)));
  if (self->rank != 0) CHECK_OK(self, dsc_mem_unregister(data_of(&send)));
  CHECK_OK(self, dsc_mem_unregister(data_of(&recv)));
  fill(data_of(&send), self->rank, COUNT);
  fill(data_of(&recv), self->rank, COUNT);
  PASS_ON(run_all(self, data_of(&send), data_of(&recv)));
  CHECK(self, is_intact(&send) && is_intact(&recv));
  array_close(&send);
  array_close(&recv);
  return 0;
}

static void all_operations(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 4; ++size) assert_int_equal(run_ranks(size, operations_body, NULL), 0);
}

/* The last rank registers alone, so the others cannot reach its memory, and it cannot reach theirs. All ranks
 * reach the send buffers if the argument is not null. */
static int subgroup_body(rank_t* self) {
  array_t send, recv;
  dsc_comm_t* part = NULL;
  CHECK(self,
        array_open(&send, self, COUNT) == 0 && array_open(&recv, self, COUNT * (size_t)self->size) == 0);
  CHECK_OK(self, dsc_comm_split(self->world, self->rank == self->size - 1, self->rank, NULL, &part));
  CHECK_OK(self, dsc_mem_register(self->arg ? self->world : part, data_of(&send), send.bytes));
  CHECK_OK(self, dsc_mem_register(part, data_of(&recv), recv.bytes));
  PASS_ON(run_all(self, data_of(&send), data_of(&recv)));
  CHECK_OK(self, dsc_comm_destroy(part));
  PASS_ON(run_all(self, data_of(&send), data_of(&recv)));
  CHECK_OK(self, dsc_mem_unregister(data_of(&send)));
  CHECK_OK(self, dsc_mem_unregister(data_of(&recv)));
  CHECK(self, is_intact(&send) && is_intact(&recv));
  array_close(&send);
  array_close(&recv);
  return 0;
}

static void memory_of_a_subgroup(void** state) {
  (void)state;
  for (int32_t size = 2; size <= 4; ++size) {
    assert_int_equal(run_ranks(size, subgroup_body, NULL), 0);
    assert_int_equal(run_ranks(size, subgroup_body, "the world registers the send buffers"), 0);
  }
}

/* Each operation, with buffers that differ in what other ranks can reach. */
static int move_with(rank_t* self, float* send, float* recv, size_t count) {
  const int32_t root = self->size - 1;
  const size_t all = count * (size_t)self->size;
  fill(send, self->rank, all);
  CHECK_OK(self, dsc_scatter(self->world, send, recv, count, DSC_DTYPE_F32, root, NULL, NULL));
  CHECK_PATH(self, "zero_copy");
  PASS_ON(check_values(self, recv, root, (size_t)self->rank * count, count));
  CHECK_OK(self, dsc_broadcast(self->world, send, recv, count, DSC_DTYPE_F32, root, NULL, NULL));
  CHECK_PATH(self, "zero_copy");
  PASS_ON(check_values(self, recv, root, 0, count));
  CHECK_OK(self, dsc_reduce(self->world, send, recv, count, DSC_DTYPE_F32, DSC_OP_SUM, root, NULL, NULL));
  CHECK_PATH(self, "zero_copy");
  if (self->rank == root) PASS_ON(check_sums(self, recv, 0, count));
  CHECK_OK(self, dsc_gather(self->world, send, recv, count, DSC_DTYPE_F32, root, NULL, NULL));
  CHECK_PATH(self, "zero_copy");
  CHECK_OK(self, dsc_all_gather(self->world, send, recv, count, DSC_DTYPE_F32, NULL, NULL));
  CHECK_PATH(self, "zero_copy");
  for (int32_t rank = 0; rank < self->size; ++rank)
    PASS_ON(check_values(self, recv + (size_t)rank * count, rank, 0, count));
  for (int32_t step = 1; step <= 2; ++step) { /* in place on all ranks, then only on some */
    const bool in_place = self->rank % step == 0;
    float* const own = in_place ? send + (size_t)self->rank * count : send;
    float* const gathered = in_place ? send : recv;
    fill(own, self->rank, count);
    CHECK_OK(self, dsc_all_gather(self->world, own, gathered, count, DSC_DTYPE_F32, NULL, NULL));
    CHECK_PATH(self, "zero_copy");
    for (int32_t rank = 0; rank < self->size; ++rank)
      PASS_ON(check_values(self, gathered + (size_t)rank * count, rank, 0, count));
  }
  fill(send, self->rank, all);
  CHECK_OK(self, dsc_all_to_all(self->world, send, recv, count, DSC_DTYPE_F32, NULL, NULL));
  CHECK_PATH(self, "zero_copy");
  for (int32_t rank = 0; rank < self->size; ++rank)
    PASS_ON(check_values(self, recv + (size_t)rank * count, rank, (size_t)self->rank * count, count));
  CHECK_OK(self, dsc_reduce_scatter(self->world, send, recv, count, DSC_DTYPE_F32, DSC_OP_SUM, NULL, NULL));
  CHECK_PATH(self, "zero_copy");
  return check_sums(self, recv, (size_t)self->rank * count, count);
}

/* Every buffer has memory of its own: two allocations, and ordinary memory. */
static int mixed_body(rank_t* self) {
  enum { FEW = 5000, MANY = 90000 };
  const size_t bytes = (size_t)self->size * MANY * sizeof(float);
  void *first = NULL, *second = NULL;
  float* const plain = malloc(bytes);
  CHECK(self, plain != NULL);
  CHECK_OK(self, dsc_mem_alloc(self->world, bytes, DSC_MEMORY_KIND_HOST, &first));
  CHECK_OK(self, dsc_mem_alloc(self->world, bytes, DSC_MEMORY_KIND_HOST, &second));
  for (size_t count = FEW; count <= MANY; count *= MANY / FEW) {
    PASS_ON(move_with(self, first, second, count));
    PASS_ON(move_with(self, first, plain, count));
    PASS_ON(move_with(self, self->rank % 2 == 0 ? first : second, self->rank == 0 ? second : plain, count));
    for (int round = 0; self->size > 1 && round < 2; ++round) {
      PASS_ON(pass_on(self, first, second, count, "zero_copy"));
      PASS_ON(pass_on(self, plain, first, count, "zero_copy"));
      PASS_ON(pass_on(self, first, plain, count, "zero_copy"));
      PASS_ON(pass_on(self, plain, plain + (self->size - 1) * count, count, NULL));
    }
  }
  /* the first rank has freed its part, which the others still use */
  if (self->rank == 0) CHECK_OK(self, dsc_mem_free(first));
  PASS_ON(move_with(self, self->rank == 0 ? second : first, plain, MANY));
  if (self->rank != 0) CHECK_OK(self, dsc_mem_free(first));
  CHECK_OK(self, dsc_mem_free(second));
  free(plain);
  return 0;
}

static void different_memory(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 4; ++size) assert_int_equal(run_ranks(size, mixed_body, NULL), 0);
  setenv("DSC_TUNING", "streaming_bytes=0", 1); /* also in all-gathers, ranks write to others' buffers */
  for (int32_t size = 2; size <= 4; ++size) assert_int_equal(run_ranks(size, mixed_body, NULL), 0);
  unsetenv("DSC_TUNING");
}

static void without_thread(rank_t* self) { self->options.progress_thread = 0; }

/* Rank 1 has called, but works late: rank 0 then does everything alone, and frees its buffer. Both ranks have
 * freed the other part of their allocations, so rank 1 unmaps rank 0's buffer before it looks for work. */
static int late_body(rank_t* self) {
  enum { MANY = 1 << 20, KINDS = 6 };
  const dsc_dtype_t f32 = DSC_DTYPE_F32;
  for (int kind = 0; kind < KINDS; ++kind) {
    void *first = NULL, *second = NULL;
    dsc_work_t* work = NULL;
    dsc_work_t** const late = self->rank == 0 ? NULL : &work;
    CHECK_OK(self, dsc_mem_alloc(self->world, 2 * MANY * sizeof(float), DSC_MEMORY_KIND_HOST, &first));
    CHECK_OK(self, dsc_mem_alloc(self->world, 2 * MANY * sizeof(float), DSC_MEMORY_KIND_HOST, &second));
    float* const data = self->rank == 0 ? first : second;
    CHECK_OK(self, dsc_mem_free(self->rank == 0 ? second : first));
    float* const own = kind == 5 ? data + (size_t)self->rank * MANY : data;
    fill(own, self->rank, MANY);
    CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
    if (self->rank == 0) usleep(100000);
    if (kind == 0) CHECK_OK(self, dsc_all_reduce(self->world, data, data, MANY, f32, DSC_OP_SUM, NULL, late));
    if (kind == 1) CHECK_OK(self, dsc_reduce(self->world, data, data, MANY, f32, DSC_OP_SUM, 0, NULL, late));
    if (kind == 2) CHECK_OK(self, dsc_broadcast(self->world, data, data, MANY, f32, 0, NULL, late));
    if (kind == 3) CHECK_OK(self, dsc_gather(self->world, data, data, MANY, f32, 0, NULL, late));
    if (kind == 4 && self->rank == 0) CHECK_OK(self, dsc_recv(self->world, data, MANY, f32, 1, NULL, NULL));
    if (kind == 4 && self->rank == 1) CHECK_OK(self, dsc_send(self->world, data, MANY, f32, 0, NULL, late));
    if (kind == 5) CHECK_OK(self, dsc_all_gather(self->world, own, data, MANY, f32, NULL, late));
    CHECK_PATH(self, self->rank == 0 ? "zero_copy" : "");
    if (self->rank == 0) {
      if (kind < 2) PASS_ON(check_sums(self, data, 0, MANY));
      if (kind == 2 || kind == 3 || kind == 5) PASS_ON(check_values(self, data, 0, 0, MANY));
      if (kind == 3 || kind == 5) PASS_ON(check_values(self, data + MANY, 1, 0, MANY));
      if (kind == 4) PASS_ON(check_values(self, data, 1, 0, MANY));
    } else {
      usleep(1200000); /* several heartbeats */
      CHECK_OK(self, dsc_work_synchronize(work, -1));
      CHECK_OK(self, dsc_work_destroy(work));
      if (kind == 0) PASS_ON(check_sums(self, data, 0, MANY));
      if (kind == 2 || kind == 5) PASS_ON(check_values(self, data, 0, 0, MANY));
      if (kind == 5) PASS_ON(check_values(self, data + MANY, 1, 0, MANY));
    }
    CHECK_OK(self, dsc_mem_free(data));
    CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  }
  return 0;
}

static void a_late_rank_finds_the_work_done(void** state) {
  (void)state;
  setenv("DSC_TUNING", "streaming_bytes=0", 1); /* so that ranks share the copies of the all-gather */
  assert_int_equal(run_ranks_with(2, without_thread, late_body, NULL), 0);
  unsetenv("DSC_TUNING");
}

/* The ranks free their parts at different times. */
static int unmapped_body(rank_t* self) {
  enum { ROUNDS = 20, BYTES = 1 << 16 };
  void* last = NULL;
  for (int round = 0; round < ROUNDS; ++round) {
    void* memory = NULL;
    CHECK_OK(self, dsc_mem_alloc(self->world, BYTES, DSC_MEMORY_KIND_HOST, &memory));
    if (self->rank == 0) CHECK_OK(self, dsc_mem_free(memory));
    if (self->rank != 0) CHECK_OK(self, dsc_mem_free(last));
    last = memory;
  }
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  CHECK(self, take_census().segments <= 3 * self->size);
  if (self->rank != 0) CHECK_OK(self, dsc_mem_free(last));
  for (int waits = 0; take_census().segments > 0 && waits < 600; ++waits) usleep(50000);
  CHECK(self, take_census().segments == 0);
  return 0;
}

static void freed_memory_is_unmapped(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 3; ++size) assert_int_equal(run_ranks(size, unmapped_body, NULL), 0);
}

/* No page is completely inside some of these arrays. */
static int sizes_body(rank_t* self) {
  static const size_t counts[] = {1, 100, 1024, 1500, 2048, 3000};
  for (size_t n = 0; n < sizeof counts / sizeof *counts; ++n) {
    array_t array;
    CHECK(self, array_open(&array, self, counts[n]) == 0);
    float* const data = data_of(&array);
    fill(data, self->rank, counts[n]);
    CHECK_OK(self, dsc_mem_register(self->world, data, array.bytes));
    PASS_ON(check_values(self, data, self->rank, 0, counts[n]));
    CHECK_OK(self, dsc_all_reduce(self->world, data, data, counts[n], DSC_DTYPE_F32, DSC_OP_SUM, NULL, NULL));
    PASS_ON(check_sums(self, data, 0, counts[n]));
    CHECK_OK(self, dsc_mem_unregister(data));
    PASS_ON(check_sums(self, data, 0, counts[n]));
    CHECK(self, is_intact(&array));
    array_close(&array);
  }
  return 0;
}

static void small_arrays(void** state) {
  (void)state;
  setenv("DSC_TUNING", "zero_copy_min_bytes=0", 1);
  assert_int_equal(run_ranks(3, sizes_body, NULL), 0);
  unsetenv("DSC_TUNING");
}

static int expect_refusal(rank_t* self, void* memory, size_t bytes, const char* text) {
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, dsc_mem_register(self->world, memory, bytes));
  if (strstr(dsc_last_error_message(), text) == NULL)
    FAIL(self, "expected \"%s\" in \"%s\"", text, dsc_last_error_message());
  return 0;
}

/* Only rank 0 passes memory that is refused. All ranks get its error, and no rank's memory changes. */
static int refusals_body(rank_t* self) {
  enum { BYTES = 5 * 4096 };
  const int access = PROT_READ | PROT_WRITE;
  float* const good = malloc(BYTES);
  CHECK(self, good != NULL);
  fill(good, self->rank, BYTES / sizeof *good);
  char* const pages = mmap(NULL, BYTES, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char* const common = mmap(NULL, BYTES, access, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  char* const of_file = mmap(NULL, BYTES, access, MAP_PRIVATE, file, 0);
  CHECK(self, pages != MAP_FAILED && common != MAP_FAILED && of_file != MAP_FAILED);
  char stack[BYTES];
  memset(stack, 0, sizeof stack);
  const bool bad = self->rank == 0;
  PASS_ON(expect_refusal(self, bad ? common : (void*)good, BYTES, "shared memory (MAP_SHARED)"));
  PASS_ON(expect_refusal(self, bad ? of_file : (void*)good, BYTES, "expected no mapped file and no stack"));
  if (ranks_are_processes())
    PASS_ON(expect_refusal(self, bad ? stack : (void*)good, BYTES, "is memory of [stack]"));
  CHECK(self, mprotect(pages + 4096, 4096, PROT_READ) == 0);
  PASS_ON(expect_refusal(self, bad ? pages : (void*)good, BYTES, "is memory with the rights r--"));
  CHECK(self, munmap(pages + 4096, 4096) == 0);
  PASS_ON(expect_refusal(self, bad ? pages : (void*)good, BYTES, "bytes are mapped"));
  CHECK_RESULT(self, DSC_ERR_MISMATCH, dsc_mem_register(self->world, good, (size_t)(BYTES - self->rank)));
  PASS_ON(check_values(self, good, self->rank, 0, BYTES / sizeof *good));
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, dsc_mem_unregister(good));
  close(file);
  munmap(pages, 4096);
  munmap(pages + 8192, BYTES - 8192);
  munmap(common, BYTES);
  munmap(of_file, BYTES);
  free(good);
  return 0;
}

static void refused_memory(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, refusals_body, NULL), 0);
}

static int overlaps_body(rank_t* self) {
  enum { BYTES = 8 * 4096 };
  char* const data = malloc(BYTES);
  void *shared = NULL, *kept = NULL;
  CHECK(self, data != NULL);
  CHECK_OK(self, dsc_mem_alloc(self->world, BYTES, DSC_MEMORY_KIND_HOST, &shared));
  PASS_ON(expect_refusal(self, shared, 4096, "which are registered or from dsc_mem_alloc()"));
  CHECK_OK(self, dsc_mem_register(self->world, data + 100, BYTES - 200));
  for (size_t at = 0; at < 3; ++at) PASS_ON(expect_refusal(self, data + 50 * at, 4096, "bytes at 0x"));
  PASS_ON(expect_refusal(self, data, 101, "which are registered or from dsc_mem_alloc()"));
  PASS_ON(expect_refusal(self, data + BYTES - 101, 50, "which are registered or from dsc_mem_alloc()"));
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, dsc_mem_retain(data + 200, &kept));
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, dsc_mem_free(data + 100));
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, dsc_mem_unregister(data));
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, dsc_mem_unregister(shared));
  CHECK_OK(self, dsc_mem_register(self->world, data, 100)); /* beside the other one, in the same page */
  CHECK_OK(self, dsc_mem_unregister(data));
  CHECK_OK(self, dsc_mem_unregister(data + 100));
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, dsc_mem_unregister(data + 100));
  CHECK_OK(self, dsc_mem_unregister(NULL));
  CHECK_OK(self, dsc_mem_register(self->world, data, BYTES)); /* registered again, as a whole */
  CHECK_OK(self, dsc_mem_unregister(data));
  CHECK_OK(self, dsc_mem_free(shared));
  free(data);
  return 0;
}

static void overlapping_memory(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, overlaps_body, NULL), 0);
}

/* Memory stays registered, and can be unregistered, when its world has ended. Memory that this rank has freed
 * before, and others have not, is then unmapped. */
static int late_end_body(rank_t* self) {
  enum { BYTES = 10 * 4096 };
  float* const data = malloc(BYTES);
  CHECK(self, data != NULL);
  fill(data, self->rank, BYTES / sizeof *data);
  CHECK_OK(self, dsc_init_distributed(&self->options, &self->world));
  CHECK_OK(self, dsc_mem_register(self->world, data, BYTES));
  void* shared = NULL;
  const int before = take_census().segments;
  CHECK_OK(self, dsc_mem_alloc(self->world, BYTES, DSC_MEMORY_KIND_HOST, &shared));
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  /* Ranks of other hosts map nothing of this one. */
  const bool frees = self->rank == 0 && take_census().segments - before >= 2;
  if (frees) CHECK_OK(self, dsc_mem_free(shared));
  const int mapped = take_census().segments;
  CHECK_OK(self, dsc_comm_finalize(self->world));
  CHECK_OK(self, dsc_comm_destroy(self->world));
  for (int waits = 0; frees && take_census().segments >= mapped && waits < 200; ++waits) usleep(50000);
  CHECK(self, !frees || take_census().segments < mapped);
  PASS_ON(check_values(self, data, self->rank, 0, BYTES / sizeof *data));
  CHECK_OK(self, dsc_mem_unregister(data));
  if (!frees) CHECK_OK(self, dsc_mem_free(shared));
  PASS_ON(check_values(self, data, self->rank, 0, BYTES / sizeof *data));
  free(data);
  return 0;
}

static void memory_that_outlives_its_world(void** state) {
  (void)state;
  assert_int_equal(run_without_world(2, late_end_body, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_operations),
      cmocka_unit_test(memory_of_a_subgroup),
      cmocka_unit_test(different_memory),
      cmocka_unit_test(freed_memory_is_unmapped),
      cmocka_unit_test(a_late_rank_finds_the_work_done),
      cmocka_unit_test(small_arrays),
      cmocka_unit_test(refused_memory),
      cmocka_unit_test(overlapping_memory),
      cmocka_unit_test(memory_that_outlives_its_world),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
