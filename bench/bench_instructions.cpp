// Runs the fast paths in a world of one rank. instructions.py counts their instructions.
#include <dlfcn.h>
#include <dsc/dsc.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int calls = 1000;
constexpr size_t parameters = 100;
constexpr size_t elements = 16;

dsc_comm_t* world;
dsc_bucket_reducer_t* reducer;
std::array<std::array<float, elements>, parameters> gradients;
float value = 1;

void ok(dsc_result_t result) {
  if (result == DSC_OK) return;
  std::fprintf(stderr, "bench_instructions: %s: %s\n", dsc_result_name(result), dsc_last_error_message());
  std::exit(1);
}

void make_reducer() {
  std::array<dsc_tensor_t, parameters> described{};
  for (size_t i = 0; i < parameters; ++i) {
    described[i].struct_size = sizeof(dsc_tensor_t);
    described[i].data = gradients[i].data();
    described[i].count = elements;
    described[i].dtype = DSC_DTYPE_F32;
    described[i].device = -1;
  }
  ok(dsc_bucket_reducer_create(world, described.data(), parameters, nullptr, &reducer));
}

void all_reduce() {
  ok(dsc_all_reduce(world, &value, &value, 1, DSC_DTYPE_F32, DSC_OP_SUM, nullptr, nullptr));
}

void broadcast() { ok(dsc_broadcast(world, &value, &value, 1, DSC_DTYPE_F32, 0, nullptr, nullptr)); }

void barrier() { ok(dsc_barrier(world, nullptr, nullptr)); }

void work() {
  dsc_work_t* work = nullptr;
  ok(dsc_all_reduce(world, &value, &value, 1, DSC_DTYPE_F32, DSC_OP_SUM, nullptr, &work));
  ok(dsc_work_wait(work, 1000, nullptr));
  ok(dsc_work_destroy(work));
}

void bucket_iteration() {
  ok(dsc_bucket_reducer_begin(reducer, nullptr));
  for (size_t i = parameters; i-- > 0;)
    ok(dsc_bucket_reducer_mark_ready(reducer, i, gradients[i].data(), nullptr));
  ok(dsc_bucket_reducer_finish(reducer, nullptr));
}

struct Path {
  const char* name;
  void (*once)();
  int units;  // in one call
};
constexpr Path paths[] = {
    {"all_reduce_4B", all_reduce, 1},
    {"broadcast_4B", broadcast, 1},
    {"barrier", barrier, 1},
    {"work_all_reduce_4B", work, 1},
    {"bucket_parameter_64B", bucket_iteration, parameters},
};

}  // namespace

extern "C" {

// callgrind counts only inside this function.
__attribute__((noinline)) void measured(const Path& path) {
  for (int i = 0; i < calls; ++i) path.once();
}

// Replaces the function of the C library, because valgrind before 3.20 does not know pidfd_open. An eventfd
// without a writer is never readable, like the pidfd of a living process.
__attribute__((visibility("default"))) long syscall(long number, ...) {
  if (number == SYS_pidfd_open) return eventfd(0, EFD_CLOEXEC);
  static const auto real = reinterpret_cast<long (*)(long, ...)>(dlsym(RTLD_NEXT, "syscall"));
  long a[6];
  va_list list;
  va_start(list, number);
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
}

// Without an argument, lists the paths. With a path, runs it and prints the number of units.
int main(int argc, char** argv) {
  if (argc < 2)
    for (const Path& path : paths) std::puts(path.name);
  for (const Path& path : paths) {
    if (argc < 2 || std::strcmp(path.name, argv[1]) != 0) continue;
    dsc_init_options_t options;
    ok(dsc_init_options_init(&options, sizeof options));
    options.rank = 0;
    options.world_size = 1;
    ok(dsc_init_distributed(&options, &world));
    make_reducer();
    path.once();  // does what is only done once
    path.once();
    measured(path);
    ok(dsc_bucket_reducer_destroy(reducer));
    ok(dsc_finalize());
    std::printf("%d\n", calls * path.units);
  }
  return 0;
}
