/* NCCL communicators that the program created: a group uses one, and the program still owns it. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmocka_c.h"
#include "gpu.h"
#include "ranks.h"

enum { COUNT = 1000, UNIQUE_ID_BYTES = 128, NCCL_FLOAT = 7, NCCL_SUM = 0 };

typedef struct unique_id {
  char bytes[UNIQUE_ID_BYTES];
} unique_id_t;

static struct {
  int (*get_unique_id)(unique_id_t*);
  int (*init_rank)(void**, int, unique_id_t, int, void* config);
  int (*all_reduce)(const void*, void*, size_t, int, int, void*, void*);
  int (*destroy)(void*);
  int (*abort)(void*);
} nccl;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void) {
  const char* const named = getenv("DSC_NCCL_LIBRARY");
  void* const library = dlopen(named != NULL ? named : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return;
  *(void**)&nccl.get_unique_id = dlsym(library, "ncclGetUniqueId");
  *(void**)&nccl.init_rank = dlsym(library, "ncclCommInitRankConfig");
  *(void**)&nccl.all_reduce = dlsym(library, "ncclAllReduce");
  *(void**)&nccl.destroy = dlsym(library, "ncclCommDestroy");
  *(void**)&nccl.abort = dlsym(library, "ncclCommAbort");
}

static int load_nccl(rank_t* self) {
  pthread_once(&once, load);
  CHECK(self, nccl.get_unique_id && nccl.init_rank && nccl.all_reduce && nccl.destroy && nccl.abort);
  return 0;
}

/* Creates an NCCL communicator that has the world's ranks in reverse order. */
static int make_own(rank_t* self, void** own) {
  unique_id_t id;
  PASS_ON(load_nccl(self));
  if (self->rank == 0) CHECK(self, nccl.get_unique_id(&id) == 0);
  CHECK_OK(self, dsc_broadcast(self->world, &id, &id, sizeof id, DSC_DTYPE_U8, 0, NULL, NULL));
  CHECK(self, nccl.init_rank(own, self->size, id, self->size - 1 - self->rank, NULL) == 0);
  return 0;
}

static int check_all(rank_t* self, const float* memory, float expected) {
  float came[COUNT];
  CHECK(self, gpu_download(came, memory, sizeof came));
  for (int i = 0; i < COUNT; ++i)
    if (came[i] != expected)
      FAIL(self, "element %d is %g, expected %g", i, (double)came[i], (double)expected);
  return 0;
}

static int used_body(rank_t* self) {
  void* own = NULL;
  float ones[COUNT];
  for (int i = 0; i < COUNT; ++i) ones[i] = 1;
  float* const data = gpu_alloc(sizeof ones);
  CHECK(self, data != NULL && gpu_upload(data, ones, sizeof ones));
  PASS_ON(make_own(self, &own));
  dsc_comm_t *group = NULL, *part = NULL;
  CHECK_OK(self, dsc_comm_adopt(self->world, "nccl", own, NULL, &group));
  int32_t rank = -1;
  CHECK_OK(self, dsc_comm_rank(group, &rank));
  CHECK(self, rank == self->size - 1 - self->rank);
  CHECK_OK(self, dsc_all_reduce(group, data, data, COUNT, DSC_DTYPE_F32, DSC_OP_SUM, NULL, NULL));
  PASS_ON(check_all(self, data, (float)self->size));
  dsc_work_t* work = NULL;
  CHECK_OK(self, dsc_broadcast(group, data, data, COUNT, DSC_DTYPE_F32, 0, NULL, &work));
  CHECK_OK(self, dsc_work_synchronize(work, -1));
  CHECK_OK(self, dsc_work_destroy(work));
  CHECK_OK(self, dsc_comm_split(group, 0, rank, NULL, &part));
  CHECK_OK(self, dsc_all_reduce(part, data, data, COUNT, DSC_DTYPE_F32, DSC_OP_MAX, NULL, NULL));
  CHECK_OK(self, dsc_comm_finalize(part));
  CHECK_OK(self, dsc_comm_destroy(part));
  if (self->arg) CHECK_OK(self, dsc_comm_finalize(group));
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL)); /* so that no rank's operation is cut off */
  CHECK_OK(self, dsc_comm_destroy(group));
  CHECK(self, nccl.all_reduce(data, data, COUNT, NCCL_FLOAT, NCCL_SUM, own, NULL) == 0);
  PASS_ON(check_all(self, data, (float)(self->size * self->size)));
  CHECK(self, nccl.destroy(own) == 0);
  gpu_free(data);
  return 0;
}

static void a_group_uses_it_and_leaves_it(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 3; ++size) {
    assert_int_equal(run_ranks(size, used_body, NULL), 0);
    assert_int_equal(run_ranks(size, used_body, "finalized"), 0);
  }
}

/* All ranks refuse a communicator of other ranks. */
static int refused_body(rank_t* self) {
  void* own = NULL;
  dsc_comm_t *half = NULL, *group = NULL;
  PASS_ON(make_own(self, &own));
  CHECK_OK(self, dsc_comm_split(self->world, self->rank % 2, self->rank, NULL, &half));
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, dsc_comm_adopt(half, "nccl", own, NULL, &group));
  CHECK(self,
        strstr(dsc_last_error_message(), "has 4 ranks, expected 2, the size of this communicator") != NULL);
  CHECK(self, group == NULL);
  CHECK_OK(self, dsc_barrier(half, NULL, NULL));
  CHECK_OK(self, dsc_comm_destroy(half));
  CHECK(self, nccl.destroy(own) == 0);
  return 0;
}

static void one_of_other_ranks_is_refused(void** state) {
  (void)state;
  assert_int_equal(run_ranks(4, refused_body, NULL), 0);
}

/* The survivors get the error of the death. ncclCommRevoke frees the stream, and the program aborts its own
 * communicator. */
static int killed_body(rank_t* self) {
  void* own = NULL;
  dsc_comm_t* group = NULL;
  float* const data = gpu_alloc(COUNT * sizeof(float));
  CHECK(self, data != NULL);
  PASS_ON(make_own(self, &own));
  CHECK_OK(self, dsc_comm_adopt(self->world, "nccl", own, NULL, &group));
  PASS_ON(ranks_meet(self));
  if (self->rank == 1) kill(getpid(), SIGKILL);
  dsc_work_t* work = NULL;
  dsc_result_t came = dsc_all_reduce(group, data, data, COUNT, DSC_DTYPE_F32, DSC_OP_SUM, NULL, &work);
  if (came == DSC_OK) came = dsc_work_synchronize(work, RANKS_TIMEOUT_MS);
  if (came != DSC_ERR_PEER_DEAD || !strstr(dsc_last_error_message(), "rank 1"))
    FAIL(self, "%d: %s", came, dsc_last_error_message());
  CHECK_OK(self, dsc_work_destroy(work));
  CHECK(self, gpu_synchronize(NULL));
  CHECK_OK(self, dsc_comm_destroy(group));
  CHECK(self, nccl.abort(own) == 0);
  gpu_free(data);
  return 0;
}

static void survivors_hear_of_a_death(void** state) {
  (void)state;
  if (!ranks_are_processes()) return;
  assert_int_equal(run_ranks(3, killed_body, NULL), 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_group_uses_it_and_leaves_it),
      cmocka_unit_test(one_of_other_ranks_is_refused),
      cmocka_unit_test(survivors_hear_of_a_death),
  };
  return cmocka_run_group_tests_name("gpu_adopt", tests, NULL, NULL);
}
