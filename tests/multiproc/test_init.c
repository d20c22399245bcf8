/* Start-up and finalize, each case in new processes: what a job finds out about itself, with the same result
 * on all ranks. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "census.h"
#include "cmocka_c.h"
#include "ranks.h"

#define LENGTH(array) (sizeof(array) / sizeof(array)[0])

/* ---- the variables of the environment ---- */

enum { MOST_RANKS = 3, INIT_TIMEOUT_MS = 50000, SHORT_TIMEOUT_MS = 4000, LATE_MS = 15000 };

typedef struct environment {
  const char* rank; /* NULL if not set */
  const char* world_size;
  int32_t timeout_ms; /* of operations; 0 selects the default */
} environment_t;

typedef struct scenario {
  const char* what;
  int32_t ranks; /* how many processes are started */
  environment_t environments[MOST_RANKS];
  dsc_result_t expected; /* the result on all ranks */
  const char* words[2];  /* parts of the message on all ranks */
} scenario_t;

static const scenario_t scenarios[] = {
    {"three ranks", 3, {{"0", "3", 0}, {"1", "3", 0}, {"2", "3", 0}}, DSC_OK, {NULL}},
    {"nothing is set", 1, {{NULL, NULL, 0}}, DSC_OK, {NULL}},
    {"a world of one", 1, {{"0", "1", 0}}, DSC_OK, {NULL}},
    {"RANK alone", 1, {{"0", NULL, 0}}, DSC_ERR_CONFIG, {"RANK", "WORLD_SIZE"}},
    {"WORLD_SIZE alone", 1, {{NULL, "2", 0}}, DSC_ERR_CONFIG, {"RANK", "WORLD_SIZE"}},
    {"a word as RANK", 1, {{"first", "2", 0}}, DSC_ERR_CONFIG, {"RANK", "first"}},
    {"a tail behind RANK", 1, {{"0x", "2", 0}}, DSC_ERR_CONFIG, {"RANK", "0x"}},
    {"a fraction as WORLD_SIZE", 1, {{"0", "2.0", 0}}, DSC_ERR_CONFIG, {"WORLD_SIZE", "2.0"}},
    {"more than 32 bits", 1, {{"0", "4294967297", 0}}, DSC_ERR_CONFIG, {"WORLD_SIZE", "4294967297"}},
    {"no ranks at all", 1, {{"0", "0", 0}}, DSC_ERR_CONFIG, {"WORLD_SIZE", "expected 1 or more"}},
    {"rank 1 of 1", 1, {{"1", "1", 0}}, DSC_ERR_CONFIG, {"RANK", "expected 0"}},
    {"a rank beyond the size",
     3,
     {{"0", "3", 0}, {"1", "3", 0}, {"5", "3", 0}},
     DSC_ERR_CONFIG,
     {"rank 5", "0 to 2"}},
    {"a rank below zero", 2, {{"0", "2", 0}, {"-1", "2", 0}}, DSC_ERR_CONFIG, {"-1", "0 to 1"}},
    {"two ranks of one number",
     3,
     {{"0", "3", 0}, {"1", "3", 0}, {"1", "3", 0}},
     DSC_ERR_CONFIG,
     {"rank 1", "pid"}},
    {"two world sizes", 3, {{"0", "3", 0}, {"1", "3", 0}, {"2", "4", 0}}, DSC_ERR_CONFIG, {"3", "4"}},
    {"two time-outs",
     3,
     {{"0", "3", 0}, {"1", "3", 0}, {"2", "3", 77}},
     DSC_ERR_CONFIG,
     {"timeout_ms", "77"}},
    {"a rank that does not come", 2, {{"0", "3", 0}, {"1", "3", 0}}, DSC_ERR_TIMEOUT, {"missing", "rank 2"}},
};

static void set(const char* name, const char* value) {
  if (value != NULL)
    setenv(name, value, 1);
  else
    unsetenv(name);
}

static int check_message(rank_t* self, const scenario_t* it) {
  const char* message = dsc_last_error_message();
  CHECK(self, strncmp(message, "dsc_init_distributed: ", 22) == 0);
  for (size_t i = 0; i < LENGTH(it->words); ++i)
    if (it->words[i] != NULL && strstr(message, it->words[i]) == NULL)
      FAIL(self, "%s: the message lacks \"%s\": %s", it->what, it->words[i], message);
  return 0;
}

/* Checks that the world works and gives the right rank. */
static int check_world(rank_t* self) {
  int32_t rank = -1, sum = 1;
  CHECK_OK(self, dsc_comm_rank(self->world, &rank));
  CHECK(self, rank == self->rank);
  CHECK_OK(self, dsc_all_reduce(self->world, &sum, &sum, 1, DSC_DTYPE_I32, DSC_OP_SUM, NULL, NULL));
  CHECK(self, sum == self->size);
  CHECK_OK(self, dsc_finalize());
  return 0;
}

static int scenario_body(rank_t* self) {
  const scenario_t* it = self->arg;
  const environment_t* mine = &it->environments[self->rank];
  set("RANK", mine->rank);
  set("WORLD_SIZE", mine->world_size);
  self->options.rank = self->options.world_size = -1;
  self->options.init_timeout_ms = it->expected == DSC_ERR_TIMEOUT ? SHORT_TIMEOUT_MS : INIT_TIMEOUT_MS;
  if (mine->timeout_ms > 0) self->options.timeout_ms = mine->timeout_ms;
  self->world = (dsc_comm_t*)self; /* not NULL, so that the test sees the call set it to NULL */
  PASS_ON(ranks_meet(self));
  const int64_t start = now_ms();
  if (ranks_noted(self) == 0) ranks_note(self, start);
  const dsc_result_t result = dsc_init_distributed(&self->options, &self->world);
  const int64_t took = now_ms() - start;
  if (result != it->expected)
    FAIL(self, "%s gave %s, expected %s: %s", it->what, dsc_result_name(result),
         dsc_result_name(it->expected), dsc_last_error_message());
  if (result == DSC_OK) return check_world(self);
  CHECK(self, self->world == NULL);
  CHECK(self, took < self->options.init_timeout_ms + LATE_MS);
  /* The time-out of the first rank ends the start-up of all ranks. */
  if (result == DSC_ERR_TIMEOUT)
    CHECK(self, start + took - ranks_noted(self) >= self->options.init_timeout_ms - 50);
  CHECK_RESULT(self, DSC_ERR_STATE, dsc_world(&self->world));
  CHECK_RESULT(self, DSC_ERR_STATE, dsc_finalize());
  /* fails in the same way again */
  CHECK_RESULT(self, it->expected, dsc_init_distributed(&self->options, &self->world));
  return check_message(self, it);
}

static void environments(void** state) {
  (void)state;
  int failed = 0;
  for (size_t i = 0; i < LENGTH(scenarios); ++i)
    failed += run_without_world(scenarios[i].ranks, scenario_body, &scenarios[i]);
  assert_int_equal(failed, 0);
}

/* ---- once, twice, and again ---- */

static int is_initialized(rank_t* self, int32_t expected) {
  int32_t initialized = -1;
  CHECK_OK(self, dsc_is_initialized(&initialized));
  CHECK(self, initialized == expected);
  dsc_comm_t* world = (dsc_comm_t*)self;
  CHECK_RESULT(self, expected ? DSC_OK : DSC_ERR_STATE, dsc_world(&world));
  CHECK(self, world == (expected ? self->world : NULL));
  return 0;
}

/* Each option in turn differs from that of the existing world. */
static int check_other_options(rank_t* self) {
  const dsc_init_options_t given = self->options;
  dsc_comm_t* world = NULL;
  struct {
    const char* name;
    dsc_init_options_t options;
  } others[] = {
      {"job_id", given},      {"rank", given},        {"world_size", given},       {"local_rank", given},
      {"port", given},        {"sources", given},     {"init_timeout_ms", given},  {"timeout_ms", given},
      {"backend", given},     {"init_method", given}, {"stall_timeout_ms", given}, {"nccl.library", given},
      {"cuda.library", given}};
  others[0].options.job_id = "another";
  others[1].options.rank = 1;
  others[2].options.world_size = 2;
  others[3].options.local_rank = 0;
  others[4].options.port = 1234;
  others[5].options.sources = DSC_SOURCE_OPTIONS;
  others[6].options.init_timeout_ms = 1;
  others[7].options.timeout_ms = 1;
  others[8].options.backend = DSC_BACKEND_HOST;
  others[9].options.init_method = "env://";
  others[10].options.stall_timeout_ms = 0;
  static const dsc_setting_t settings[] = {{"nccl.library", "/another/libnccl.so.2"},
                                           {"cuda.library", "/another/libcuda.so.1"}};
  for (int i = 0; i < 2; ++i) {
    others[11 + i].options.settings = &settings[i];
    others[11 + i].options.n_settings = 1;
  }
  for (size_t i = 0; i < LENGTH(others); ++i) {
    world = self->world;
    CHECK_RESULT(self, DSC_ERR_STATE, dsc_init_distributed(&others[i].options, &world));
    CHECK(self, world == NULL);
    if (strstr(dsc_last_error_message(), others[i].name) == NULL)
      FAIL(self, "the message lacks \"%s\": %s", others[i].name, dsc_last_error_message());
  }
  return 0;
}

/* Options that are not given are not compared. */
static int check_fewer_options(rank_t* self) {
  dsc_init_options_t fewer[4];
  for (size_t i = 0; i < LENGTH(fewer); ++i)
    CHECK_OK(self, dsc_init_options_init(&fewer[i], sizeof fewer[i]));
  fewer[1].rank = self->options.rank;
  fewer[2].world_size = self->options.world_size;
  fewer[3].init_timeout_ms = self->options.init_timeout_ms;
  fewer[3].job_id = self->options.job_id;
  for (size_t i = 0; i < LENGTH(fewer); ++i) {
    dsc_comm_t* world = NULL;
    CHECK_OK(self, dsc_init_distributed(&fewer[i], &world));
    CHECK(self, world == self->world);
  }
  return 0;
}

/* Only an existing world is used: invalid options and the environment are ignored. */
static int require_existing(rank_t* self, dsc_result_t expected) {
  dsc_comm_t* found = NULL;
  dsc_init_options_t options = self->options;
  options.require_existing = 1;
  options.rank = 12;
  options.world_size = -1;
  options.timeout_ms = -5;
  options.backend = 77;
  options.init_method = "nonsense";
  setenv("RANK", "first", 1);
  setenv("MASTER_ADDR", "host.invalid", 1);
  setenv("DSC_TUNING", "nonsense", 1);
  const dsc_result_t result = dsc_init_distributed(&options, &found);
  unsetenv("RANK");
  unsetenv("MASTER_ADDR");
  unsetenv("DSC_TUNING");
  CHECK_RESULT(self, expected, result);
  CHECK(self, found == (expected == DSC_OK ? self->world : NULL));
  return 0;
}

static int second_init_body(rank_t* self) {
  dsc_comm_t* again = NULL;
  PASS_ON(require_existing(self, DSC_ERR_STATE));
  if (strstr(dsc_last_error_message(), "require_existing") == NULL)
    FAIL(self, "the message is: %s", dsc_last_error_message());
  PASS_ON(is_initialized(self, 0));
  CHECK_RESULT(self, DSC_ERR_STATE, dsc_finalize());
  CHECK_OK(self, dsc_init_distributed(&self->options, &self->world));
  PASS_ON(is_initialized(self, 1));
  CHECK_OK(self, dsc_init_distributed(NULL, &again));
  CHECK(self, again == self->world);
  CHECK_OK(self, dsc_init_distributed(&self->options, &again));
  CHECK(self, again == self->world);
  PASS_ON(require_existing(self, DSC_OK));
  PASS_ON(check_other_options(self));
  PASS_ON(check_fewer_options(self));
  PASS_ON(is_initialized(self, 1));
  CHECK_OK(self, dsc_finalize());
  PASS_ON(is_initialized(self, 0));
  CHECK_RESULT(self, DSC_ERR_STATE, dsc_finalize());
  CHECK_RESULT(self, DSC_ERR_BAD_HANDLE, dsc_barrier(self->world, NULL, NULL));
  return 0;
}

static void second_init(void** state) {
  (void)state;
  assert_int_equal(run_without_world(1, second_init_body, NULL), 0);
}

/* Callers that were compiled with the headers of another release. */
static int sizes_body(rank_t* self) {
  struct {
    dsc_init_options_t known;
    char later[24];
  } options;
  memset(&options, 0, sizeof options);
  options.known = self->options;
  options.known.struct_size = sizeof options;
  CHECK_OK(self, dsc_init_distributed(&options.known, &self->world));
  CHECK_OK(self, dsc_finalize());
  options.later[sizeof options.later - 1] = 1;
  CHECK_RESULT(self, DSC_ERR_UNSUPPORTED, dsc_init_distributed(&options.known, &self->world));
  CHECK(self, self->world == NULL);
  options.known.struct_size = sizeof options.known - 1; /* smaller than the struct of the first release */
  CHECK_RESULT(self, DSC_ERR_INVALID_ARG, dsc_init_distributed(&options.known, &self->world));
  /* with this size the bytes behind the struct are ignored */
  options.known.struct_size = sizeof options.known;
  CHECK_OK(self, dsc_init_distributed(&options.known, &self->world));
  CHECK_OK(self, dsc_finalize());
  return 0;
}

static void options_of_other_sizes(void** state) {
  (void)state;
  assert_int_equal(run_without_world(1, sizes_body, NULL), 0);
}

static void* init_in_thread(void* options) {
  dsc_comm_t* world = NULL;
  return dsc_init_distributed(options, &world) == DSC_OK ? (void*)world : NULL;
}

/* Threads of one process that start at the same time get one world. */
static int threads_body(rank_t* self) {
  enum { THREADS = 4 };
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; ++i)
    CHECK(self, pthread_create(&threads[i], NULL, init_in_thread, &self->options) == 0);
  void* worlds[THREADS];
  for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], &worlds[i]);
  for (int i = 0; i < THREADS; ++i) CHECK(self, worlds[i] != NULL && worlds[i] == worlds[0]);
  self->world = worlds[0];
  PASS_ON(is_initialized(self, 1));
  return check_world(self);
}

static void threads_that_start_at_once(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 2; ++size) assert_int_equal(run_without_world(size, threads_body, NULL), 0);
}

static int again_body(rank_t* self) {
  const int rounds = scaled_repetitions(100, 4, 20);
  census_t before = {0}, after = {0};
  for (int i = 0; i < rounds; ++i) {
    CHECK_OK(self, dsc_init_distributed(&self->options, &self->world));
    PASS_ON(check_world(self));
    if (i == 4) before = take_census();
  }
  for (int i = 0; i < 1000; ++i) { /* threads of the library may still be ending */
    after = take_census();
    if (after.descriptors <= before.descriptors && after.threads <= before.threads &&
        after.maps <= before.maps)
      return 0;
    usleep(10000);
  }
  FAIL(self, "descriptors %d, threads %d, maps %d after 5 rounds; %d, %d, %d after %d", before.descriptors,
       before.threads, before.maps, after.descriptors, after.threads, after.maps, rounds);
}

static void a_hundred_times(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 3; ++size) assert_int_equal(run_without_world(size, again_body, NULL), 0);
}

/* ---- a child made by fork() ---- */

static int child_of(dsc_comm_t* world, void* memory) {
  int32_t number = 7;
  dsc_comm_t* other = NULL;
  int right = dsc_barrier(world, NULL, NULL) == DSC_ERR_FORKED;
  right += strncmp(dsc_last_error_message(), "dsc_barrier: ", 13) == 0;
  right += dsc_comm_rank(world, &number) == DSC_ERR_FORKED && number == 7;
  right += dsc_world(&other) == DSC_ERR_FORKED;
  right += dsc_init_distributed(NULL, &other) == DSC_ERR_FORKED;
  right += dsc_finalize() == DSC_ERR_FORKED;
  right += dsc_comm_destroy(world) == DSC_ERR_FORKED;
  right += dsc_mem_free(memory) == DSC_ERR_FORKED;
  right += dsc_version(&number, NULL, NULL) == DSC_OK && number == DSC_VERSION_MAJOR;
  right += *(const int32_t*)memory == 42; /* the child inherits the memory */
  return right == 10 ? 0 : 1;
}

static int fork_body(rank_t* self) {
  void* memory = NULL;
  CHECK_OK(self, dsc_init_distributed(&self->options, &self->world));
  CHECK_OK(self, dsc_mem_alloc(self->world, sizeof(int32_t), DSC_MEMORY_KIND_HOST, &memory));
  *(int32_t*)memory = 42;
  const pid_t child = fork();
  if (child == 0) _exit(child_of(self->world, memory));
  int status = -1;
  CHECK(self, child > 0 && waitpid(child, &status, 0) == child);
  CHECK(self, WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK_OK(self, dsc_mem_free(memory));
  return check_world(self);
}

static void child_of_a_rank(void** state) {
  (void)state;
  for (int32_t size = 1; size <= 2; ++size) assert_int_equal(run_without_world(size, fork_body, NULL), 0);
}

static int clean_environment(void** state) {
  (void)state;
  static const char* const names[] = {"RANK",        "WORLD_SIZE",  "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                      "MASTER_ADDR", "MASTER_PORT", "DSC_PORT"};
  for (size_t i = 0; i < LENGTH(names); ++i) unsetenv(names[i]);
  return setenv("DSC_TEST_RANKS", "processes", 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(environments),           cmocka_unit_test(second_init),
      cmocka_unit_test(options_of_other_sizes), cmocka_unit_test(threads_that_start_at_once),
      cmocka_unit_test(a_hundred_times),        cmocka_unit_test(child_of_a_rank),
  };
  return cmocka_run_group_tests(tests, clean_environment, NULL);
}
