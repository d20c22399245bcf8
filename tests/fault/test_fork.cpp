// Processes that fork: the child may not use the library, and does not disturb the processes that do.
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <thread>

#include "crew.hpp"
#include "random_work.hpp"
#include "traces.hpp"

// Included last because it defines macros such as fail().
extern "C" {
#include <cmocka.h>
}

namespace {

using namespace fault;

constexpr int kForks = 20;

// The objects of a rank at the moment of the fork.
struct Objects {
  dsc_comm_t* world = nullptr;
  dsc_comm_t* group = nullptr;
  dsc_work_t* work = nullptr;
  dsc_bucket_reducer_t* reducer = nullptr;
  dsc_sharded_t* sharded = nullptr;
  void* memory = nullptr;
  float value = 1;
  float gradient[4] = {};
};

bool make_objects(Rank& rank, Objects& objects) {
  objects.world = rank.world;
  const dsc_tensor_t parameter = [&] {
    dsc_tensor_t tensor{};
    tensor.struct_size = sizeof tensor;
    tensor.data = objects.gradient;
    tensor.count = 4;
    tensor.dtype = DSC_DTYPE_F32;
    tensor.device = -1;
    return tensor;
  }();
  dsc_result_t result = dsc_comm_split(rank.world, 0, 0, nullptr, &objects.group);
  if (result == DSC_OK) result = dsc_mem_alloc(rank.world, 4096, DSC_MEMORY_KIND_HOST, &objects.memory);
  if (result == DSC_OK)
    result = dsc_bucket_reducer_create(rank.world, &parameter, 1, nullptr, &objects.reducer);
  if (result == DSC_OK) result = dsc_sharded_create(rank.world, &parameter, 1, nullptr, &objects.sharded);
  if (result == DSC_OK)
    result = dsc_all_reduce(rank.world, &objects.value, &objects.value, 1, DSC_DTYPE_F32, DSC_OP_SUM, nullptr,
                            &objects.work);
  if (result != DSC_OK) rank.note("objects: %s", dsc_last_error_message());
  return result == DSC_OK;
}

struct ForkedCall {
  const char* name;
  dsc_result_t result;
};

// Returns the first call that was not refused, or NULL.
const char* first_allowed(std::initializer_list<ForkedCall> calls) {
  for (const auto& call : calls)
    if (call.result != DSC_ERR_FORKED) return call.name;
  return nullptr;
}

const char* call_sharded(const Objects& objects) {
  dsc_sharded_t* sharded = nullptr;
  dsc_sharded_memory_info_t held{};
  held.struct_size = sizeof held;
  void* memory = nullptr;
  const float in[8] = {};
  double norm = 0;
  size_t starts[4];
  size_t count = 0;
  return first_allowed({
      {"sharded_create", dsc_sharded_create(objects.world, nullptr, 0, nullptr, &sharded)},
      {"sharded_begin", dsc_sharded_begin(objects.sharded, 0, nullptr)},
      {"sharded_accumulate", dsc_sharded_accumulate(objects.sharded, 0, in, 0, nullptr)},
      {"sharded_mark_ready", dsc_sharded_mark_ready(objects.sharded, 0, in, 0, nullptr)},
      {"sharded_mark_unused", dsc_sharded_mark_unused(objects.sharded, 0)},
      {"sharded_finish", dsc_sharded_finish(objects.sharded, nullptr)},
      {"sharded_clip", dsc_sharded_clip(objects.sharded, nullptr, &norm, nullptr)},
      {"sharded_step_done", dsc_sharded_step_done(objects.sharded, 1, nullptr)},
      {"sharded_unshard", dsc_sharded_unshard(objects.sharded, 0)},
      {"sharded_wait", dsc_sharded_wait(objects.sharded, 0, nullptr)},
      {"sharded_reshard", dsc_sharded_reshard(objects.sharded, 0, nullptr)},
      {"sharded_param_view", dsc_sharded_param_view(objects.sharded, 0, &memory)},
      {"sharded_grad_view", dsc_sharded_grad_view(objects.sharded, 0, &memory)},
      {"sharded_places",
       dsc_sharded_locations(objects.sharded, starts, starts, starts, &count, &count, &count)},
      {"sharded_shards", dsc_sharded_shards(objects.sharded, nullptr, 0, &count)},
      {"sharded_ranges", dsc_sharded_ranges(objects.sharded, nullptr, 0, &count)},
      {"sharded_memory", dsc_sharded_memory_info(objects.sharded, &held)},
      {"sharded_stats", dsc_sharded_stats(objects.sharded, nullptr, 0, &count)},
      {"sharded_destroy", dsc_sharded_destroy(objects.sharded)},
  });
}

const char* call_reducers(const Objects& objects) {
  void* memory = nullptr;
  float in[8] = {};
  float out[8] = {};
  size_t count = 0;
  size_t starts[4];
  uint64_t rebuilds = 0;
  double norm = 0;
  dsc_join_t* join = nullptr;
  return first_allowed({
      {"bucket_reducer_begin", dsc_bucket_reducer_begin(objects.reducer, nullptr)},
      {"bucket_reducer_mark_ready", dsc_bucket_reducer_mark_ready(objects.reducer, 0, in, nullptr)},
      {"bucket_reducer_mark_unused", dsc_bucket_reducer_mark_unused(objects.reducer, 0)},
      {"bucket_reducer_grad_view", dsc_bucket_reducer_grad_view(objects.reducer, 0, &memory)},
      {"bucket_reducer_finish", dsc_bucket_reducer_finish(objects.reducer, nullptr)},
      {"bucket_reducer_buckets", dsc_bucket_reducer_buckets(objects.reducer, starts, starts, &count)},
      {"bucket_reducer_stats", dsc_bucket_reducer_stats(objects.reducer, nullptr, 0, &count)},
      {"bucket_reducer_set_sync", dsc_bucket_reducer_set_sync(objects.reducer, 0)},
      {"bucket_reducer_unused", dsc_bucket_reducer_unused(objects.reducer, nullptr, 0, &count)},
      {"bucket_reducer_rebuilds", dsc_bucket_reducer_rebuilds(objects.reducer, &rebuilds)},
      {"bucket_reducer_read_grad", dsc_bucket_reducer_read_grad(objects.reducer, 0, out)},
      {"bucket_reducer_mark_sparse", dsc_bucket_reducer_mark_sparse(objects.reducer, 0, nullptr, nullptr, 0)},
      {"bucket_reducer_sparse", dsc_bucket_reducer_sparse(objects.reducer, 0, nullptr, nullptr, nullptr)},
      {"bucket_reducer_set_buffers", dsc_bucket_reducer_set_buffers(objects.reducer, nullptr, 0)},
      {"bucket_reducer_sync_buffers", dsc_bucket_reducer_sync_buffers(objects.reducer, DSC_BUFFER_SYNC_MEAN)},
      {"bucket_reducer_clip", dsc_bucket_reducer_clip(objects.reducer, nullptr, &norm)},
      {"bucket_reducer_stats_json", dsc_bucket_reducer_stats_json(objects.reducer, nullptr, 0, &count)},
      {"bucket_reducer_draw", dsc_bucket_reducer_draw(objects.reducer, nullptr, 0, &count)},
      {"bucket_reducer_set_hook", dsc_bucket_reducer_set_hook(objects.reducer, nullptr, nullptr, nullptr)},
      {"bucket_reducer_use_hook", dsc_bucket_reducer_use_hook(objects.reducer, "fp16")},
      {"bucket_reducer_save_hook", dsc_bucket_reducer_save_hook(objects.reducer, nullptr, 0, &count)},
      {"bucket_reducer_load_hook", dsc_bucket_reducer_load_hook(objects.reducer, in, 4)},
      {"join_create", dsc_join_create(objects.world, &objects.reducer, 1, nullptr, &join)},
      {"bucket_reducer_destroy", dsc_bucket_reducer_destroy(objects.reducer)},
  });
}

// Returns the first function that a forked child may call by mistake, or NULL.
const char* call_everything(const Objects& objects) {
  dsc_comm_t* comm = objects.world;
  dsc_comm_t* made = nullptr;
  void* memory = nullptr;
  float in[8] = {};
  float out[8] = {};
  int32_t number = 0;
  const int32_t ranks[] = {0};
  char text[512];
  size_t count = 0;
  dsc_error_info_t info{};
  info.struct_size = sizeof info;
  const dsc_dtype_t f32 = DSC_DTYPE_F32;
  const dsc_op_t sum = DSC_OP_SUM;
  if (const char* allowed = call_reducers(objects)) return allowed;
  return first_allowed({
      {"init_distributed", dsc_init_distributed(nullptr, &made)},
      {"world", dsc_world(&made)},
      {"is_initialized", dsc_is_initialized(&number)},
      {"comm_rank", dsc_comm_rank(comm, &number)},
      {"comm_size", dsc_comm_size(comm, &number)},
      {"comm_local_rank", dsc_comm_local_rank(comm, &number)},
      {"comm_local_size", dsc_comm_local_size(comm, &number)},
      {"comm_backend", dsc_comm_backend(comm, &number)},
      {"comm_name", dsc_comm_name(comm, text, sizeof text, &count)},
      {"comm_tuning", dsc_comm_tuning(comm, text, sizeof text, &count)},
      {"comm_global_rank", dsc_comm_global_rank(comm, 0, &number)},
      {"comm_group_rank", dsc_comm_group_rank(comm, 0, &number)},
      {"comm_set_timeout", dsc_comm_set_timeout(comm, 1000)},
      {"comm_timeout", dsc_comm_timeout(comm, &number)},
      {"comm_stats", dsc_comm_stats(comm, nullptr, 0, &count)},
      {"comm_error", dsc_comm_error_info(comm, &info)},
      {"comm_split", dsc_comm_split(comm, 0, 0, nullptr, &made)},
      {"comm_create_group", dsc_comm_create_group(comm, ranks, 1, nullptr, &made)},
      {"all_reduce", dsc_all_reduce(comm, in, out, 1, f32, sum, nullptr, nullptr)},
      {"broadcast", dsc_broadcast(comm, in, in, 1, f32, 0, nullptr, nullptr)},
      {"all_gather", dsc_all_gather(comm, in, out, 1, f32, nullptr, nullptr)},
      {"reduce_scatter", dsc_reduce_scatter(comm, in, out, 1, f32, sum, nullptr, nullptr)},
      {"barrier", dsc_barrier(comm, nullptr, nullptr)},
      {"send", dsc_send(comm, in, 1, f32, 1, nullptr, nullptr)},
      {"recv", dsc_recv(comm, out, 1, f32, 1, nullptr, nullptr)},
      {"mem_alloc", dsc_mem_alloc(comm, 4096, DSC_MEMORY_KIND_HOST, &memory)},
      {"mem_register", dsc_mem_register(comm, &memory, sizeof memory)},
      {"mem_unregister", dsc_mem_unregister(&memory)},
      {"mem_retain", dsc_mem_retain(objects.memory, &memory)},
      {"mem_free", dsc_mem_free(objects.memory)},
      {"work_test", dsc_work_test(objects.work, &number)},
      {"work_wait", dsc_work_wait(objects.work, -1, nullptr)},
      {"work_synchronize", dsc_work_synchronize(objects.work, -1)},
      {"work_error", dsc_work_error_info(objects.work, &info)},
      {"work_eventfd", dsc_work_eventfd(objects.work, &number)},
      {"work_destroy", dsc_work_destroy(objects.work)},
      {"comm_abort", dsc_comm_abort(comm)},
      {"comm_finalize", dsc_comm_finalize(comm)},
      {"comm_destroy", dsc_comm_destroy(objects.group)},
      {"finalize", dsc_finalize()},
  });
}

// Returns 0 if every call of a child gives DSC_ERR_FORKED and the child ended in time.
int call_everything_in_a_child(Rank& rank, const Objects& objects) {
  const pid_t child = fork();
  if (child == 0) {
    const char* wrong = call_sharded(objects);
    if (!wrong) wrong = call_everything(objects);
    if (wrong) rank.note("dsc_%s works in a forked child", wrong);
    if (static_cast<const char*>(objects.memory)[7] != 42) rank.note("the child does not see the memory");
    _exit(wrong ? 1 : 0);
  }
  int status = -1;
  for (const int64_t end = now_ms() + 20'000 * slowdown(); now_ms() < end; sleep_ms(1))
    if (waitpid(child, &status, WNOHANG) == child) return status;
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  rank.note("a child hangs");
  return -1;
}

void expect_all_well(Crew& crew, int timeout_ms) {
  const bool ended = crew.await_end_of_all(timeout_ms * slowdown());
  for (int rank = 0; rank < crew.size(); ++rank)
    if (!ended || crew.status(rank) != 0 || crew.report(rank).note[0])
      fail_msg("%s", crew.describe().c_str());
}

void test_every_call_of_a_child_is_refused(void**) {
  Crew crew(2, [](Rank& rank) {
    Objects objects;
    if (!rank.join(rank.options()) || !make_objects(rank, objects)) return 2;
    static_cast<char*>(objects.memory)[7] = 42;
    if (call_everything_in_a_child(rank, objects) != 0) return 3;
    // The parent continues as if it had not forked.
    if (dsc_work_wait(objects.work, -1, nullptr) != DSC_OK || objects.value != 2) return 4;
    if (dsc_barrier(objects.group, nullptr, nullptr) != DSC_OK) return 5;
    if (dsc_sharded_destroy(objects.sharded) != DSC_OK) return 6;
    return dsc_bucket_reducer_destroy(objects.reducer) == DSC_OK && dsc_finalize() == DSC_OK ? 0 : 7;
  });
  expect_all_well(crew, 20'000);
}

// One thread forks while another thread runs operations.
void test_forks_while_operations_run(void**) {
  Crew crew(2, [](Rank& rank) {
    Objects objects;
    if (!rank.join(rank.options()) || !make_objects(rank, objects)) return 2;
    static_cast<char*>(objects.memory)[7] = 42;
    RandomWork work(rank, 7, size_t{1} << 20);
    if (!work.prepare()) return 3;
    dsc_result_t result = DSC_OK;
    std::thread worker([&] {
      for (int i = 0; i < 200 && result == DSC_OK && work.wrong().empty(); ++i) result = work.step();
    });
    int refused = 0;
    for (int i = 0; i < kForks; ++i) refused += call_everything_in_a_child(rank, objects) == 0;
    worker.join();
    if (!work.wrong().empty()) rank.note("%s", work.wrong().c_str());
    if (result != DSC_OK) rank.note("%s", dsc_result_name(result));
    return refused == kForks && dsc_finalize() == DSC_OK ? 0 : 4;
  });
  expect_all_well(crew, 80'000);
}

// A long-lived child, such as a data loader, must not hold the meeting's name or any other resource.
void test_child_that_lives_on_holds_no_name(void**) {
  const Traces traces;
  constexpr int kWorlds = 3;
  {
    Crew crew(2, [](Rank& rank) {
      pid_t children[kWorlds] = {};
      for (pid_t& child : children) {
        if (!rank.join(rank.options())) return 2;
        child = fork();
        if (child == 0)
          for (;;) pause();
        if (dsc_barrier(rank.world, nullptr, nullptr) != DSC_OK || dsc_finalize() != DSC_OK) return 3;
      }
      for (const pid_t child : children) kill(child, SIGKILL);
      for (const pid_t child : children)
        if (waitpid(child, nullptr, 0) != child) return 4;
      return 0;
    });
    expect_all_well(crew, 20'000);
  }
  const std::string left = traces.left();
  if (!left.empty()) fail_msg("left behind:%s", left.c_str());
}

}  // namespace

int main() {
  isolate();
  const CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_every_call_of_a_child_is_refused, end_everything),
      cmocka_unit_test_teardown(test_forks_while_operations_run, end_everything),
      cmocka_unit_test_teardown(test_child_that_lives_on_holds_no_name, end_everything),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
