/* Communicators of meshes: their members, order and names, and meshes that differ between ranks. */
#include <stdlib.h>
#include <string.h>

#include "cmocka_c.h"
#include "ranks.h"

enum { AXES = 3 };

static const char* const names[AXES] = {"tp", "dp", "pp"};

static int make_mesh(rank_t* self, const int32_t* sizes, const char* order, dsc_mesh_t** mesh) {
  dsc_mesh_options_t options;
  CHECK_OK(self, dsc_mesh_options_init(&options, sizeof options));
  options.order = order;
  CHECK_OK(self, dsc_mesh_create(names, sizes, AXES, &options, mesh));
  return 0;
}

/* Checks that the group has the ranks that the mesh lists, works, and is named after its axes. */
static int check_group(rank_t* self, dsc_mesh_t* mesh, const char* axes, const char* name) {
  int32_t listed[8], gathered[8], rank = -1, size = -1;
  size_t n = 0, member = 99;
  dsc_comm_t* group = NULL;
  char found[32];
  size_t bytes = 0;
  CHECK_OK(self, dsc_mesh_comm(mesh, self->world, axes, NULL, &group));
  CHECK_OK(self, dsc_mesh_group(mesh, self->rank, axes, listed, 8, &n, NULL, &member));
  CHECK_OK(self, dsc_comm_rank(group, &rank));
  CHECK_OK(self, dsc_comm_size(group, &size));
  CHECK(self, size == (int32_t)n && rank == (int32_t)member);
  CHECK_OK(self, dsc_all_gather(group, &self->rank, gathered, 1, DSC_DTYPE_I32, NULL, NULL));
  CHECK(self, memcmp(gathered, listed, n * sizeof *listed) == 0);
  CHECK_OK(self, dsc_comm_name(group, found, sizeof found, &bytes));
  if (strcmp(found, name) != 0) FAIL(self, "the name is \"%s\", expected \"%s\"", found, name);
  CHECK_OK(self, dsc_comm_destroy(group));
  return 0;
}

/* The receivers know neither the type nor the sizes of an array, and allocate it after they got both. */
static int array_body(rank_t* self) {
  static const int32_t sizes[AXES] = {1, 1, 2};
  const int is_root = self->rank == 1;
  double sent[6] = {1, 2, 3, 4, 5, 6};
  int64_t shape[3] = {2, 3, -7};
  dsc_dtype_t type = is_root ? DSC_DTYPE_F64 : 0;
  size_t ndim = is_root ? 2 : 99;
  dsc_mesh_t* mesh = NULL;
  dsc_comm_t* pipe = NULL;
  PASS_ON(make_mesh(self, sizes, "tp-dp-pp", &mesh));
  CHECK_OK(self, dsc_mesh_comm(mesh, self->world, "pp", NULL, &pipe));
  if (!is_root) memset(shape, 0, sizeof shape);
  CHECK_OK(self, dsc_broadcast_shape(pipe, &type, shape, is_root ? 0 : 3, &ndim, 1));
  CHECK(self, type == DSC_DTYPE_F64 && ndim == 2 && shape[0] == 2 && shape[1] == 3);
  double* all = is_root ? sent : calloc((size_t)(shape[0] * shape[1]), sizeof *all);
  CHECK(self, all != NULL);
  CHECK_OK(self, dsc_broadcast(pipe, all, all, (size_t)(shape[0] * shape[1]), type, 1, NULL, NULL));
  CHECK(self, memcmp(all, sent, sizeof sent) == 0);
  if (!is_root) free(all);
  if (!is_root) memset(shape, 0, sizeof shape);
  CHECK_RESULT(self, is_root ? DSC_OK : DSC_TRUNCATED,
               dsc_broadcast_shape(pipe, &type, shape, is_root ? 2 : 1, &ndim, 1));
  CHECK(self, ndim == 2 && shape[0] == 2 && (is_root || shape[1] == 0));
  if (!is_root) ndim = 99, type = 0;
  CHECK_OK(self, dsc_broadcast_shape(pipe, &type, is_root ? shape : NULL, 0, &ndim, 1));
  CHECK(self, type == DSC_DTYPE_F64 && ndim == 2); /* called without an output for the sizes */
  CHECK_OK(self, dsc_batch_begin(pipe));
  CHECK_RESULT(self, DSC_ERR_STATE, dsc_broadcast_shape(pipe, &type, shape, 3, &ndim, 1));
  CHECK_OK(self, dsc_batch_end(pipe, NULL, NULL));
  CHECK_OK(self, dsc_barrier(pipe, NULL, NULL));
  CHECK_OK(self, dsc_comm_destroy(pipe));
  CHECK_OK(self, dsc_mesh_destroy(mesh));
  return 0;
}

static void arrays_of_unknown_size(void** state) {
  (void)state;
  assert_int_equal(run_ranks(2, array_body, NULL), 0);
}

static int groups_body(rank_t* self) {
  static const int32_t sizes[AXES] = {2, 2, 2};
  dsc_mesh_t* mesh = NULL;
  PASS_ON(make_mesh(self, sizes, "tp-dp-pp", &mesh));
  PASS_ON(check_group(self, mesh, "tp", "tp"));
  PASS_ON(check_group(self, mesh, "dp", "dp"));
  PASS_ON(check_group(self, mesh, "pp", "pp"));
  PASS_ON(check_group(self, mesh, "pp-tp", "tp-pp"));
  PASS_ON(check_group(self, mesh, "tp-dp-pp", "tp-dp-pp"));
  CHECK_OK(self, dsc_mesh_destroy(mesh));
  return 0;
}

static void groups_are_the_lists_of_the_mesh(void** state) {
  (void)state;
  assert_int_equal(run_ranks(8, groups_body, NULL), 0);
}

/* The last stage of each pipeline sends to all stages. */
static int broadcast_body(rank_t* self) {
  static const int32_t sizes[AXES] = {2, 1, 4};
  dsc_mesh_t* mesh = NULL;
  dsc_comm_t* pipe = NULL;
  PASS_ON(make_mesh(self, sizes, NULL, &mesh));
  dsc_comm_options_t options;
  CHECK_OK(self, dsc_comm_options_init(&options, sizeof options));
  options.name = "pipeline";
  CHECK_OK(self, dsc_mesh_comm(mesh, self->world, "pp", &options, &pipe));
  int32_t stages = 0, last = -1, told = self->rank;
  CHECK_OK(self, dsc_comm_size(pipe, &stages));
  CHECK_OK(self, dsc_broadcast(pipe, &told, &told, 1, DSC_DTYPE_I32, stages - 1, NULL, NULL));
  CHECK_OK(self, dsc_mesh_peer(mesh, self->rank, "pp", -1, &last));
  CHECK(self, told == last && told == (self->rank < 4 ? 3 : 7));
  char name[32];
  size_t bytes = 0;
  CHECK_OK(self, dsc_comm_name(pipe, name, sizeof name, &bytes));
  CHECK(self, strcmp(name, "pipeline") == 0);
  CHECK_OK(self, dsc_mesh_destroy(mesh)); /* destroying the mesh keeps the communicator */
  CHECK_OK(self, dsc_barrier(pipe, NULL, NULL));
  CHECK_OK(self, dsc_comm_destroy(pipe));
  return 0;
}

static void the_last_stage_tells_the_others(void** state) {
  (void)state;
  assert_int_equal(run_ranks(8, broadcast_body, NULL), 0);
}

/* Every rank gets the error with the same text, and the parent still works. */
static int refused(rank_t* self, dsc_mesh_t* mesh, const char* axes, dsc_result_t expected,
                   const char* words) {
  dsc_comm_t* group = self->world;
  CHECK_RESULT(self, expected, dsc_mesh_comm(mesh, self->world, axes, NULL, &group));
  CHECK(self, group == NULL);
  if (strstr(dsc_last_error_message(), words) == NULL)
    FAIL(self, "expected \"%s\" in: %s", words, dsc_last_error_message());
  CHECK_OK(self, dsc_barrier(self->world, NULL, NULL));
  return 0;
}

static int mismatch_body(rank_t* self) {
  static const int32_t right[AXES] = {2, 2, 2}, other[AXES] = {2, 4, 1}, small[AXES] = {2, 1, 1};
  dsc_mesh_t *mesh = NULL, *differs = NULL, *too_small = NULL;
  PASS_ON(make_mesh(self, right, "tp-dp-pp", &mesh));
  PASS_ON(make_mesh(self, self->rank == 5 ? other : right, "tp-dp-pp", &differs));
  PASS_ON(make_mesh(self, small, "tp-dp-pp", &too_small));
  PASS_ON(
      refused(self, differs, "tp", DSC_ERR_MISMATCH,
              "expected the same mesh on all ranks, but it is \"tp=2-dp=2-pp=2 from rank 0\" on rank 0 and "
              "\"tp=2-dp=4-pp=1 from rank 0\" on rank 5"));
  PASS_ON(refused(self, mesh, self->rank < 6 ? "tp" : "dp", DSC_ERR_MISMATCH,
                  "expected the same axes on all ranks, but it is \"tp\" on rank 0 and \"dp\" on ranks 6, "
                  "7"));
  PASS_ON(refused(self, too_small, "tp", DSC_ERR_INVALID_ARG, "the mesh has 2 ranks, expected 8"));
  PASS_ON(refused(self, mesh, "ep", DSC_ERR_INVALID_ARG, "there is no axis \"ep\""));
  PASS_ON(check_group(self, mesh, "tp", "tp"));
  CHECK_OK(self, dsc_mesh_destroy(mesh));
  CHECK_OK(self, dsc_mesh_destroy(differs));
  CHECK_OK(self, dsc_mesh_destroy(too_small));
  return 0;
}

static void what_differs_is_told_on_all_ranks(void** state) {
  (void)state;
  assert_int_equal(run_ranks(8, mismatch_body, NULL), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(groups_are_the_lists_of_the_mesh),
      cmocka_unit_test(the_last_stage_tells_the_others),
      cmocka_unit_test(arrays_of_unknown_size),
      cmocka_unit_test(what_differs_is_told_on_all_ranks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
