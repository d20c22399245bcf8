#include "capi_walk.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cmocka_c.h"

walk_world_t walk_world;

static const char* header_folder;
static dsc_comm_t* stale_comm;
static dsc_work_t* stale_work;
static dsc_bucket_reducer_t* stale_reducer;
static dsc_pipe_schedule_t* stale_schedule;
static dsc_pipe_report_t* stale_report;
static dsc_mesh_t* stale_mesh;
static dsc_store_t* stale_store;
static dsc_tied_layers_t* stale_tied;
static dsc_sharded_t* stale_sharded;
static dsc_ring_t* stale_ring;

void walk_expect(const char* file, int line, const char* condition, bool holds) {
  if (holds) return;
  print_error("%s:%d: expected %s\n", file, line, condition);
  fail();
}

void walk_check(const char* file, int line, const char* call, dsc_result_t expected, dsc_result_t came) {
  const char* message = dsc_last_error_message();
  if (came != expected) {
    print_error("%s:%d: %s\n  gave %s, expected %s; last error: %s\n", file, line, call,
                dsc_result_name(came), dsc_result_name(expected), message);
    fail();
  }
  if (came >= DSC_OK) return;
  const size_t name = strcspn(call, "(");
  if (strncmp(message, call, name) == 0 && strncmp(message + name, ": ", 2) == 0 && message[name + 2] != 0)
    return;
  print_error("%s:%d: %s\n  the message does not start with the function: %s\n", file, line, call, message);
  fail();
}

/* ---- wrong handles ---- */

enum { OWN_BAD = 5, FOREIGN = 8, FIRST_BIT = 8, BITS = 64 - FIRST_BIT };

size_t walk_bad_handles(void) { return OWN_BAD + FOREIGN + BITS; }

static void* wrong_kind(walk_kind_t kind, bool first) {
  if (kind == WALK_COMM) return first ? (void*)walk_world.work : (void*)walk_world.reducer;
  if (kind == WALK_WORK) return first ? (void*)walk_world.schedule : (void*)walk_world.reducer;
  return first ? (void*)walk_world.world : (void*)walk_world.work;
}

static void* live(walk_kind_t kind) {
  if (kind == WALK_COMM) return walk_world.world;
  if (kind == WALK_SCHEDULE) return walk_world.schedule;
  if (kind == WALK_MESH) return walk_world.mesh;
  if (kind == WALK_STORE) return walk_world.store;
  if (kind == WALK_TIED) return walk_world.tied;
  if (kind == WALK_JOIN) return walk_world.join;
  if (kind == WALK_REPORT) return walk_world.report;
  if (kind == WALK_SHARDED) return walk_world.sharded;
  if (kind == WALK_RING) return walk_world.ring;
  if (kind == WALK_MOE_PLAN) return walk_world.moe_plan;
  return kind == WALK_WORK ? (void*)walk_world.work : (void*)walk_world.reducer;
}

static void* stale(walk_kind_t kind) {
  if (kind == WALK_COMM) return stale_comm;
  if (kind == WALK_SCHEDULE) return stale_schedule;
  if (kind == WALK_MESH) return stale_mesh;
  if (kind == WALK_STORE) return stale_store;
  if (kind == WALK_TIED) return stale_tied;
  if (kind == WALK_JOIN) return walk_world.stale_join;
  if (kind == WALK_REPORT) return stale_report;
  if (kind == WALK_SHARDED) return stale_sharded;
  if (kind == WALK_RING) return stale_ring;
  if (kind == WALK_MOE_PLAN) return walk_world.stale_moe_plan;
  return kind == WALK_WORK ? (void*)stale_work : (void*)stale_reducer;
}

void* walk_bad_handle(walk_kind_t kind, size_t index) {
  static int on_stack_of_the_program;
  static const uintptr_t foreign[FOREIGN] = {
      1, 2, 0xffffff, 0xdeadbeef, UINTPTR_MAX, UINTPTR_MAX / 2, 0x1000000000000001u, 0x5555555555555555u};
  switch (index) {
    case 0:
      return NULL;
    case 1:
      return stale(kind);
    case 2:
      return wrong_kind(kind, true);
    case 3:
      return wrong_kind(kind, false);
    case 4:
      return &on_stack_of_the_program;
    default:
      if (index < OWN_BAD + FOREIGN) return (void*)foreign[index - OWN_BAD];
      /* A valid handle with one bit flipped. The lowest bits are not flipped, because they could give another
       * valid handle. */
      return (void*)((uintptr_t)live(kind) ^ (uintptr_t)1 << (index - OWN_BAD - FOREIGN + FIRST_BIT));
  }
}

/* ---- the other rank: joins each all-reduce by which rank 0 announces a step, until rank 0 announces the end
 * ---- */

enum { SAY_WORKS = 1, SAY_END = 2 };

static int join_world(int32_t rank, dsc_comm_t** world) {
  char job_id[48];
  snprintf(job_id, sizeof job_id, "walk-%d", (int)getpid());
  dsc_init_options_t options;
  dsc_init_options_init(&options, sizeof options);
  options.rank = rank;
  options.world_size = 2;
  options.rank_per_thread = 1;
  options.job_id = job_id;
  options.init_timeout_ms = options.timeout_ms = 20000;
  return dsc_init_distributed(&options, world);
}

static void describe_parameters(dsc_tensor_t tensors[2], float data[16]) {
  for (int i = 0; i < 2; ++i)
    tensors[i] = (dsc_tensor_t){.struct_size = sizeof *tensors,
                                .data = data + 8 * i,
                                .count = 8,
                                .dtype = DSC_DTYPE_F32,
                                .device = -1};
}

static int tie_layers(dsc_comm_t* world, int32_t rank, dsc_tied_layers_t** tied) {
  static const int32_t stages[] = {0, 1};
  dsc_tensor_t tensors[2];
  float data[16] = {0};
  describe_parameters(tensors, data);
  const dsc_tied_key_t keys[] = {{.struct_size = sizeof *keys,
                                  .key = "embed",
                                  .stages = stages,
                                  .n_stages = 2,
                                  .weights = &tensors[0],
                                  .n_weights = 1},
                                 {.struct_size = sizeof *keys,
                                  .key = "alone",
                                  .stages = stages + 1,
                                  .n_stages = 1,
                                  .weights = &tensors[1],
                                  .n_weights = (size_t)rank}};
  return dsc_tied_layers_create(world, keys, 2, NULL, tied);
}

static int shard_parameters(dsc_comm_t* alone, dsc_sharded_t** sharded) {
  static const size_t units[] = {0, 1};
  dsc_tensor_t tensors[2];
  float data[16] = {0};
  describe_parameters(tensors, data);
  dsc_shard_plan_options_t plan;
  dsc_sharded_options_t options;
  dsc_shard_plan_options_init(&plan, sizeof plan);
  dsc_sharded_options_init(&options, sizeof options);
  plan.unit_starts = units;
  plan.n_units = 2;
  options.plan = &plan;
  options.stage = 3;
  return dsc_sharded_create(alone, tensors, 2, &options, sharded);
}

/* Both ranks create these objects together before the walk. */
static int make_objects(dsc_comm_t* world, walk_world_t* made, dsc_comm_t** group,
                        dsc_bucket_reducer_t** second) {
  dsc_bucket_reducer_options_t options;
  dsc_bucket_reducer_options_init(&options, sizeof options);
  options.sync = 0;
  dsc_tensor_t tensors[2];
  float data[16] = {0};
  describe_parameters(tensors, data);
  int result = dsc_comm_split(world, 0, 0, NULL, group);
  int32_t rank = 0;
  if (result == DSC_OK) result = dsc_comm_rank(world, &rank);
  if (result == DSC_OK) result = dsc_comm_split(world, rank, 0, NULL, &made->alone);
  if (result == DSC_OK) result = dsc_mem_alloc(world, 4096, DSC_MEMORY_KIND_HOST, &made->memory);
  if (result == DSC_OK) result = dsc_bucket_reducer_create(world, tensors, 2, &options, &made->reducer);
  if (result == DSC_OK) result = dsc_bucket_reducer_create(world, tensors, 2, &options, second);
  if (result == DSC_OK) result = shard_parameters(made->alone, &made->sharded);
  if (result == DSC_OK && rank == 0) result = shard_parameters(made->alone, &stale_sharded);
  if (result == DSC_OK) result = tie_layers(world, rank, &made->tied);
  if (result == DSC_OK && rank == 0) result = dsc_tied_layers_create(made->alone, NULL, 0, NULL, &stale_tied);
  if (result == DSC_OK) result = dsc_ring_create(made->alone, 32, 32, &made->ring);
  if (result == DSC_OK && rank == 0) result = dsc_ring_create(made->alone, 32, 32, &stale_ring);
  return result;
}

static void* other_rank(void* unused) {
  (void)unused;
  walk_world_t mine = {0};
  dsc_comm_t* group = NULL;
  dsc_bucket_reducer_t* second = NULL;
  intptr_t result = join_world(1, &mine.world);
  if (result == DSC_OK) result = make_objects(mine.world, &mine, &group, &second);
  for (int32_t said = 0; result == DSC_OK && said != SAY_END;) {
    said = 0;
    result = dsc_all_reduce(mine.world, &said, &said, 1, DSC_DTYPE_I32, DSC_OP_MAX, NULL, NULL);
  }
  if (result == DSC_OK) result = dsc_finalize();
  return (void*)result;
}

static dsc_result_t say(int32_t what) {
  int32_t heard = what;
  const dsc_result_t result =
      dsc_all_reduce(walk_world.world, &heard, &heard, 1, DSC_DTYPE_I32, DSC_OP_MAX, NULL, NULL);
  return result == DSC_OK && heard != what ? DSC_ERR_INTERNAL : result;
}

void walk_world_works(void) { WALK(DSC_OK, say(SAY_WORKS)); }

static pthread_t other_thread;

static int make_stores(void) {
  if (dsc_store_open("memory://", NULL, &stale_store) != DSC_OK) return -1;
  if (dsc_store_open("memory://", NULL, &walk_world.store) != DSC_OK) return -1;
  return dsc_store_destroy(stale_store) == DSC_OK ? 0 : -1;
}

static int make_meshes(void) {
  static const char* const names[] = {"tp", "dp"};
  static const int32_t sizes[] = {2, 3};
  dsc_mesh_options_t options;
  if (dsc_mesh_options_init(&options, sizeof options) != DSC_OK) return -1;
  options.order = "tp-dp";
  if (dsc_mesh_create(names, sizes, 2, &options, &stale_mesh) != DSC_OK) return -1;
  if (dsc_mesh_create(names, sizes, 2, &options, &walk_world.mesh) != DSC_OK) return -1;
  return dsc_mesh_destroy(stale_mesh) == DSC_OK ? 0 : -1;
}

static int make_schedules(void) {
  dsc_pipe_schedule_options_t options;
  if (dsc_pipe_schedule_options_init(&options, sizeof options) != DSC_OK) return -1;
  options.name = "1f1b";
  options.stages = 4;
  options.stage = 1;
  options.micro_batches = 8;
  if (dsc_pipe_schedule_create(&options, &stale_schedule) != DSC_OK) return -1;
  if (dsc_pipe_schedule_create(&options, &walk_world.schedule) != DSC_OK) return -1;
  if (dsc_pipe_simulate(walk_world.schedule, NULL, &stale_report) != DSC_OK) return -1;
  if (dsc_pipe_simulate(walk_world.schedule, NULL, &walk_world.report) != DSC_OK) return -1;
  if (dsc_pipe_report_destroy(stale_report) != DSC_OK) return -1;
  return dsc_pipe_schedule_destroy(stale_schedule) == DSC_OK ? 0 : -1;
}

static int set_up(void** state) {
  (void)state;
  if (make_schedules() != 0 || make_meshes() != 0 || make_stores() != 0) return -1;
  if (pthread_create(&other_thread, NULL, other_rank, NULL) != 0) return -1;
  if (join_world(0, &walk_world.world) != DSC_OK) return -1;
  if (make_objects(walk_world.world, &walk_world, &stale_comm, &stale_reducer) != DSC_OK) return -1;
  int32_t heard = SAY_WORKS;
  if (dsc_all_reduce(walk_world.world, &heard, &heard, 1, DSC_DTYPE_I32, DSC_OP_MAX, NULL,
                     &walk_world.work) != 0 ||
      dsc_work_wait(walk_world.work, -1, NULL) != DSC_OK)
    return -1;
  dsc_work_t* work = NULL;
  int32_t again = SAY_WORKS;
  if (dsc_all_reduce(walk_world.world, &again, &again, 1, DSC_DTYPE_I32, DSC_OP_MAX, NULL, &work) != 0)
    return -1;
  stale_work = work;
  if (dsc_work_wait(work, -1, NULL) != DSC_OK || dsc_work_destroy(work) != DSC_OK) return -1;
  return dsc_comm_destroy(stale_comm) != DSC_OK || dsc_bucket_reducer_destroy(stale_reducer) != DSC_OK ||
         dsc_sharded_destroy(stale_sharded) != DSC_OK || dsc_tied_layers_destroy(stale_tied) != DSC_OK ||
         dsc_ring_destroy(stale_ring) != DSC_OK;
}

static int tear_down(void** state) {
  (void)state;
  void* result = NULL;
  if (dsc_pipe_report_destroy(walk_world.report) != DSC_OK) return -1;
  if (dsc_pipe_schedule_destroy(walk_world.schedule) != DSC_OK) return -1;
  if (dsc_mesh_destroy(walk_world.mesh) != DSC_OK) return -1;
  if (dsc_store_destroy(walk_world.store) != DSC_OK) return -1;
  if (say(SAY_END) != DSC_OK || dsc_finalize() != DSC_OK || pthread_join(other_thread, &result) != 0)
    return -1;
  return result == NULL ? 0 : -1;
}

/* ---- the walk ---- */

static const walk_step_t* const lists[] = {walk_pure,
                                           walk_init,
                                           walk_comm,
                                           walk_operations,
                                           walk_recovery,
                                           walk_reducer,
                                           walk_features,
                                           walk_tied,
                                           walk_pipe,
                                           walk_mesh,
                                           walk_store,
                                           walk_trace,
                                           walk_simulate,
                                           walk_sharded,
                                           walk_cross_entropy,
                                           walk_rms_norm,
                                           walk_context_parallel,
                                           walk_expert_parallel};
enum { LISTS = sizeof lists / sizeof *lists };

static void walk_all(const walk_step_t* list) {
  for (; list->function != NULL; ++list) {
    list->walk();
    walk_world_works();
  }
}

static void pure_functions(void** state) {
  (void)state;
  walk_all(walk_pure);
}

static void start_up(void** state) {
  (void)state;
  walk_all(walk_init);
}

static void communicators(void** state) {
  (void)state;
  walk_all(walk_comm);
}

static void operations_and_work(void** state) {
  (void)state;
  walk_all(walk_operations);
}

static void recovery(void** state) {
  (void)state;
  walk_all(walk_recovery);
}

static void reducers(void** state) {
  (void)state;
  walk_all(walk_reducer);
  walk_all(walk_features);
}

static void sharded_parameters(void** state) {
  (void)state;
  walk_all(walk_sharded);
}

static void tied_layers(void** state) {
  (void)state;
  walk_all(walk_tied);
}

static void cross_entropy(void** state) {
  (void)state;
  walk_all(walk_cross_entropy);
  walk_all(walk_rms_norm);
}

static void context_parallelism(void** state) {
  (void)state;
  walk_all(walk_context_parallel);
}

static void expert_parallelism(void** state) {
  (void)state;
  walk_all(walk_expert_parallel);
}

static void pipeline_schedules(void** state) {
  (void)state;
  walk_all(walk_pipe);
}

static void simulations(void** state) {
  (void)state;
  walk_all(walk_simulate);
}

static void meshes(void** state) {
  (void)state;
  walk_all(walk_mesh);
}

static void stores(void** state) {
  (void)state;
  walk_all(walk_store);
}

static void traces(void** state) {
  (void)state;
  walk_all(walk_trace);
}

/* ---- every function of the headers is part of the walk ---- */

static bool is_walked(const char* name, size_t length) {
  for (size_t i = 0; i < LISTS; ++i)
    for (const walk_step_t* step = lists[i]; step->function != NULL; ++step)
      if (strlen(step->function) == length && strncmp(step->function, name, length) == 0) return true;
  return false;
}

/* Finds the functions of one header: the name between DSC_API and the parenthesis. */
static int check_header(const char* path) {
  static char text[1 << 17];
  FILE* file = fopen(path, "r");
  if (file == NULL) return 0;
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  fclose(file);
  int functions = 0;
  for (const char* at = strstr(text, "\nDSC_API "); at != NULL; at = strstr(at + 1, "\nDSC_API ")) {
    const char* end = strchr(at, '(');
    const char* name = end;
    while (strchr(" *\n", name[-1]) == NULL) --name;
    ++functions;
    if (is_walked(name, (size_t)(end - name))) continue;
    print_error("%s: %.*s is not walked\n", path, (int)(end - name), name);
    fail();
  }
  return functions;
}

static void every_function_is_walked(void** state) {
  (void)state;
  DIR* folder = opendir(header_folder);
  assert_non_null(folder);
  int functions = 0;
  for (const struct dirent* entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", header_folder, entry->d_name);
    if (strstr(entry->d_name, ".h") != NULL) functions += check_header(path);
  }
  closedir(folder);
  int steps = 0;
  for (size_t i = 0; i < LISTS; ++i)
    for (const walk_step_t* step = lists[i]; step->function != NULL; ++step) ++steps;
  assert_int_equal(functions, steps);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s FOLDER_OF_THE_HEADERS\n", argv[0]);
    return EXIT_FAILURE;
  }
  header_folder = argv[1];
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_function_is_walked),
      cmocka_unit_test(pure_functions),
      cmocka_unit_test(start_up),
      cmocka_unit_test(communicators),
      cmocka_unit_test(operations_and_work),
      cmocka_unit_test(recovery),
      cmocka_unit_test(reducers),
      cmocka_unit_test(sharded_parameters),
      cmocka_unit_test(tied_layers),
      cmocka_unit_test(cross_entropy),
      cmocka_unit_test(context_parallelism),
      cmocka_unit_test(expert_parallelism),
      cmocka_unit_test(pipeline_schedules),
      cmocka_unit_test(simulations),
      cmocka_unit_test(meshes),
      cmocka_unit_test(stores),
      cmocka_unit_test(traces),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
