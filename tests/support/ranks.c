#include "ranks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gpu.h"
#include "repetitions.h"

enum { FAILURE_BYTES = 1024, PATIENCE_MS = 120000, MEETING_MS = 60000, SKIPPED = 77 };

/* Shared by all ranks, also by ranks that are processes. */
struct ranks_shared {
  atomic_int arrivals;
  atomic_llong number;
  char failures[RANKS_MAX][FAILURE_BYTES];
};

typedef struct job {
  rank_body_t body;
  rank_options_t options;
  bool makes_world;
  char id[64];
} job_t;

typedef struct rank_run {
  rank_t rank;
  const job_t* job;
  pthread_t thread;
  pid_t child;
  int failed;
} rank_run_t;

bool ranks_are_processes(void) {
  const char* value = getenv("DSC_TEST_RANKS");
  if (value != NULL) return strcmp(value, "processes") == 0;
  /* on real GPUs, processes can share a device if there are fewer devices than ranks */
  return gpu_wanted() && gpu_is_real() && gpu_count_apart() < RANKS_MAX;
}

size_t test_scale(void) {
  const char* value = getenv("DSC_TEST_SCALE");
  if (value != NULL && atoi(value) > 0) return (size_t)atoi(value);
#if defined(__SANITIZE_THREAD__)
  return 16;
#elif defined(__SANITIZE_ADDRESS__)
  return 4;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
  return 16;
#elif __has_feature(address_sanitizer)
  return 4;
#endif
#endif
  return 1;
}

int scaled_repetitions(int usual, int most_scale, int least) {
  const int scale = (int)test_scale();
  return test_repetitions(usual / (scale < most_scale ? scale : most_scale), least);
}

int64_t now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

uint64_t next_random(uint64_t* state) {
  uint64_t value = *state += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

int rank_fail(rank_t* self, const char* file, int line, const char* format, ...) {
  if (self->failure[0] != 0) return 1;
  const int used = snprintf(self->failure, FAILURE_BYTES, "%s:%d: ", file, line);
  va_list args;
  va_start(args, format);
  vsnprintf(self->failure + used, (size_t)(FAILURE_BYTES - used), format, args);
  va_end(args);
  return 1;
}

int rank_expect_result(rank_t* self, const char* file, int line, const char* call, dsc_result_t expected,
                       dsc_result_t came) {
  if (came == expected) return 0;
  return rank_fail(self, file, line, "%s\n    gave %s, expected %s; last error: %s", call,
                   dsc_result_name(came), dsc_result_name(expected), dsc_last_error_message());
}

/* Waiting is useless if a rank that has not arrived yet has failed. */
static bool somebody_failed(const rank_t* self) {
  for (int32_t i = 0; i < self->size; ++i)
    if (self->shared->failures[i][0] != 0) return true;
  return false;
}

int ranks_meet(rank_t* self) {
  const int last = (atomic_fetch_add(&self->shared->arrivals, 1) / self->size + 1) * self->size;
  for (const int64_t start = now_ms(); atomic_load(&self->shared->arrivals) < last; usleep(1000))
    if (now_ms() - start > MEETING_MS || somebody_failed(self))
      return rank_fail(self, __FILE__, __LINE__, "not all ranks came to meet");
  return 0;
}

void ranks_note(rank_t* self, int64_t number) { atomic_store(&self->shared->number, number); }

int64_t ranks_noted(const rank_t* self) { return atomic_load(&self->shared->number); }

int ranks_await(rank_t* self, int64_t wanted) {
  for (const int64_t start = now_ms(); ranks_noted(self) != wanted; usleep(1000))
    if (now_ms() - start > MEETING_MS || somebody_failed(self))
      return rank_fail(self, __FILE__, __LINE__, "no rank noted %d", (int)wanted);
  return 0;
}

/* NCCL accepts only one rank per device on a host. Ranks with different host ids may share a device. */
static void wish_for_device(rank_t* self) {
  const char* why = NULL;
  const int devices = gpu_count(&why);
  self->options.backend = DSC_BACKEND_DEVICE;
  self->options.device = devices > 0 ? self->rank % devices : 0;
  if (devices < self->size && ranks_are_processes()) {
    char id[32];
    snprintf(id, sizeof id, "rank-%d", self->rank);
    setenv("NCCL_HOSTID", id, 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    setenv("NCCL_IB_DISABLE", "1", 0);
  }
  gpu_bind(self->options.device);
}

static int hosts(void) {
  const char* value = getenv("DSC_TEST_HOSTS");
  return value != NULL ? atoi(value) : 1;
}

static void default_options(rank_t* self, const job_t* job) {
  dsc_init_options_init(&self->options, sizeof self->options);
  /* with several hosts, rank and world size are in the environment, together with the number of ranks per
   * host */
  if (hosts() == 1) {
    self->options.rank = self->rank;
    self->options.world_size = self->size;
  }
  self->options.job_id = job->id;
  self->options.rank_per_thread = ranks_are_processes() ? 0 : 1;
  self->options.init_timeout_ms = RANKS_TIMEOUT_MS;
  self->options.timeout_ms = RANKS_TIMEOUT_MS;
  if (gpu_wanted()) wish_for_device(self);
  if (job->options != NULL) job->options(self);
}

/* A failed rank leaves immediately, so that the other ranks do not wait for it. */
static int run_in_world(rank_t* self, const job_t* job) {
  CHECK_OK(self, dsc_init_distributed(&self->options, &self->world));
  if (job->body(self) != 0) {
    dsc_comm_destroy(self->world);
    return 1;
  }
  int32_t initialized = 0;
  CHECK_OK(self, dsc_is_initialized(&initialized));
  if (initialized) CHECK_OK(self, dsc_finalize());
  return 0;
}

static int run_rank(rank_run_t* run) {
  default_options(&run->rank, run->job);
  return run->job->makes_world ? run->job->body(&run->rank) : run_in_world(&run->rank, run->job);
}

static void* rank_thread(void* opaque) {
  rank_run_t* run = opaque;
  run->failed = run_rank(run);
  return NULL;
}

/* A rank that does not return keeps using its memory. Only the end of the process helps. */
static void give_up(const rank_run_t* runs, int32_t rank) {
  fprintf(stderr, "rank %d of %d did not come back within %d s\n", rank, runs[rank].rank.size,
          PATIENCE_MS / 1000);
  for (int32_t i = 0; i < runs[rank].rank.size; ++i)
    if (runs[i].rank.failure[0] != 0) fprintf(stderr, "rank %d: %s\n", i, runs[i].rank.failure);
  _exit(EXIT_FAILURE);
}

static void run_threads(rank_run_t* runs, int32_t size) {
  for (int32_t i = 0; i < size; ++i)
    if (pthread_create(&runs[i].thread, NULL, rank_thread, &runs[i]) != 0) {
      fprintf(stderr, "pthread_create failed\n");
      _exit(EXIT_FAILURE);
    }
  struct timespec deadline;
  clock_gettime(CLOCK_REALTIME, &deadline);
  deadline.tv_sec += PATIENCE_MS / 1000;
  for (int32_t i = 0; i < size; ++i)
    if (pthread_timedjoin_np(runs[i].thread, NULL, &deadline) != 0) give_up(runs, i);
}

static int await_child(rank_run_t* run, int64_t deadline_ms) {
  int status = 0;
  while (waitpid(run->child, &status, WNOHANG) == 0) {
    if (now_ms() >= deadline_ms) {
      kill(run->child, SIGKILL);
      waitpid(run->child, &status, 0);
      return rank_fail(&run->rank, __FILE__, __LINE__, "killed: it did not come back");
    }
    usleep(1000);
  }
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  return rank_fail(&run->rank, __FILE__, __LINE__, "the process ended by signal %d", WTERMSIG(status));
}

bool ranks_are_on_several_hosts(void) { return hosts() > 1; }

/* Returns a free port. No other program is likely to take it before the ranks do. */
static uint16_t free_port(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || bind(fd, (struct sockaddr*)&address, length) != 0 ||
      getsockname(fd, (struct sockaddr*)&address, &length) != 0) {
    perror("a free port");
    _exit(EXIT_FAILURE);
  }
  close(fd);
  return ntohs(address.sin_port);
}

/* The first ranks are on the first host, and so on. */
static int32_t host_of(const rank_t* self, int32_t rank) { return rank * hosts() / self->size; }

static void set_host(const rank_t* self, uint16_t port) {
  char text[32];
  const int32_t host = host_of(self, self->rank);
  int32_t on_host = 0;
  for (int32_t rank = 0; rank < self->size; ++rank) on_host += host_of(self, rank) == host;
  snprintf(text, sizeof text, "test-%d", host);
  setenv("DSC_HOST_ID", text, 1);
  snprintf(text, sizeof text, "%d", on_host);
  setenv("LOCAL_WORLD_SIZE", text, 1);
  snprintf(text, sizeof text, "%d", self->rank);
  setenv("RANK", text, 1);
  snprintf(text, sizeof text, "%d", self->size);
  setenv("WORLD_SIZE", text, 1);
  snprintf(text, sizeof text, "%u", port);
  setenv("MASTER_PORT", text, 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("DSC_TOKEN", "5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e", 1);
}

static void run_processes(rank_run_t* runs, int32_t size) {
  fflush(NULL);
  const uint16_t port = hosts() > 1 ? free_port() : 0;
  for (int32_t i = 0; i < size; ++i) {
    runs[i].child = fork();
    if (runs[i].child == 0) {
      if (port != 0) set_host(&runs[i].rank, port);
      _exit(run_rank(&runs[i]));
    }
    if (runs[i].child < 0) {
      perror("fork");
      _exit(EXIT_FAILURE);
    }
  }
  const int64_t deadline_ms = now_ms() + PATIENCE_MS;
  for (int32_t i = 0; i < size; ++i) runs[i].failed = await_child(&runs[i], deadline_ms);
}

/* If a driver is named, it must work. */
static void need_devices(void) {
  if (!gpu_wanted() || getenv("DSC_CUDA_LIBRARY") != NULL || gpu_count_apart() > 0) return;
  fprintf(stderr, "skipped: DSC_TEST_DEVICE is set, and there is no CUDA device (nor a fake one)\n");
  _exit(SKIPPED);
}

static int run(int32_t usual_size, job_t* job, const void* arg) {
  static int jobs = 0;
  const char* wanted = getenv("DSC_TEST_SIZE");
  const int32_t size = wanted != NULL ? atoi(wanted) : usual_size;
  need_devices();
  snprintf(job->id, sizeof job->id, "test-%d-%d", (int)getpid(), ++jobs);
  ranks_shared_t* const shared =
      mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED || size > RANKS_MAX) abort();
  rank_run_t runs[RANKS_MAX];
  memset(runs, 0, sizeof runs);
  for (int32_t i = 0; i < size; ++i) {
    runs[i].rank =
        (rank_t){.rank = i, .size = size, .arg = arg, .failure = shared->failures[i], .shared = shared};
    runs[i].job = job;
  }
  if (ranks_are_processes())
    run_processes(runs, size);
  else
    run_threads(runs, size);
  int failed = 0;
  for (int32_t i = 0; i < size; ++i) {
    if (runs[i].failed == 0) continue;
    ++failed;
    fprintf(stderr, "rank %d of %d: %s\n", i, size, shared->failures[i]);
  }
  munmap(shared, sizeof *shared);
  return failed;
}

int run_ranks(int32_t size, rank_body_t body, const void* arg) {
  return run_ranks_with(size, NULL, body, arg);
}

int run_ranks_with(int32_t size, rank_options_t options, rank_body_t body, const void* arg) {
  job_t job = {.body = body, .options = options};
  return run(size, &job, arg);
}

int run_without_world(int32_t size, rank_body_t body, const void* arg) {
  job_t job = {.body = body, .makes_world = true};
  return run(size, &job, arg);
}
