// Sharded parameters through the public interface, on the host engine. The ranks are threads of this process.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "dsc/dsc.h"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

namespace {

using Floats = std::vector<float>;

std::atomic<int> complaints{0};  // cmocka's assertions may be used only on the test's own thread

void check(bool good, const char* what, int line) {
  if (good) return;
  ++complaints;
  print_error("line %d: %s; last error: %s\n", line, what, dsc_last_error_message());
}
#define CHECK(condition) check((condition), #condition, __LINE__)
#define CHECK_OK(call) CHECK((call) == DSC_OK)
#define CHECK_FAILS(call, code, words)                     \
  do {                                                     \
    CHECK((call) == (code));                               \
    CHECK(std::strstr(dsc_last_error_message(), (words))); \
  } while (0)

void join_and_run(int rank, int size, const char* job, const std::function<void(dsc_comm_t*, int)>& body) {
  dsc_init_options_t options;
  CHECK_OK(dsc_init_options_init(&options, sizeof options));
  options.rank = rank;
  options.world_size = size;
  options.rank_per_thread = 1;
  options.job_id = job;
  options.init_timeout_ms = options.timeout_ms = 30'000;
  dsc_comm_t* world = nullptr;
  if (dsc_init_distributed(&options, &world) != DSC_OK) return check(false, "dsc_init_distributed", __LINE__);
  body(world, rank);
  dsc_comm_destroy(world);
}

void on_ranks(int size, const std::function<void(dsc_comm_t*, int)>& body) {
  static int number = 0;
  const std::string job = "sharded-" + std::to_string(getpid()) + "-" + std::to_string(number++);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(join_and_run, rank, size, job.c_str(), body);
  for (std::thread& thread : threads) thread.join();
  assert_int_equal(complaints.exchange(0), 0);
}

const std::vector<size_t> kCounts{3, 1000, 1, 17, 0, 64, 5000, 20'000};
const char* const kNames[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
const std::vector<size_t> kUnits{0, 2, 5, 7};

float value(int rank, size_t parameter, size_t i, int step) {
  const auto mixed = static_cast<uint32_t>(rank * 7919 + static_cast<int>(parameter) * 104729 +
                                           static_cast<int>(i) * 31 + step) *
                     2654435761U;
  return static_cast<float>(mixed) / 4294967296.0F - 0.3F;
}

struct Rules {
  int32_t stage = 2;
  int32_t layout = DSC_SHARD_LAYOUT_UNIT;
  int32_t shard_size = 0;
  size_t max_live_bytes = 0;
  int32_t average = DSC_AVERAGE_NONE;
};

// The parameters of one rank. They begin with rank 0's values.
struct Model {
  Model(dsc_comm_t* world, int rank, const Rules& rules) {
    for (size_t p = 0; p < kCounts.size(); ++p) {
      values.emplace_back(kCounts[p]);
      for (size_t i = 0; i < kCounts[p]; ++i) values[p][i] = value(rank, p, i, 99);
      dsc_tensor_t tensor{};
      tensor.struct_size = sizeof tensor;
      tensor.data = values[p].data();
      tensor.count = kCounts[p];
      tensor.dtype = DSC_DTYPE_F32;
      tensor.device = -1;
      tensor.name = kNames[p];
      tensors.push_back(tensor);
    }
    dsc_shard_plan_options_t plan;
    CHECK_OK(dsc_shard_plan_options_init(&plan, sizeof plan));
    plan.layout = rules.layout;
    plan.bucket_elements = 900;
    if (rules.layout != DSC_SHARD_LAYOUT_MEGATRON) {
      plan.unit_starts = kUnits.data();
      plan.n_units = kUnits.size();
    }
    dsc_sharded_options_t options;
    CHECK_OK(dsc_sharded_options_init(&options, sizeof options));
    options.plan = &plan;
    options.stage = rules.stage;
    options.shard_size = rules.shard_size;
    options.max_live_bytes = rules.max_live_bytes;
    options.average = rules.average;
    CHECK_OK(dsc_sharded_create(world, tensors.data(), tensors.size(), &options, &sharded));
    size_t buckets[8], starts[8], shard = 0, shards = 0;
    CHECK_OK(dsc_sharded_locations(sharded, units, buckets, starts, &n_units, &shard, &shards));
  }
  ~Model() { CHECK_OK(dsc_sharded_destroy(sharded)); }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  std::vector<dsc_sharded_shard_t> shards() const {
    std::vector<dsc_sharded_shard_t> list(kCounts.size());
    list[0].struct_size = sizeof list[0];
    size_t count = 0;
    CHECK_OK(dsc_sharded_shards(sharded, list.data(), list.size(), &count));
    list.resize(count);
    return list;
  }

  std::vector<dsc_sharded_range_t> ranges() const {
    std::vector<dsc_sharded_range_t> list(2 * kCounts.size());
    list[0].struct_size = sizeof list[0];
    size_t count = 0;
    CHECK_OK(dsc_sharded_ranges(sharded, list.data(), list.size(), &count));
    list.resize(count);
    return list;
  }

  std::vector<Floats> values;
  std::vector<dsc_tensor_t> tensors;
  dsc_sharded_t* sharded = nullptr;
  size_t units[8];
  size_t n_units = 0;
};

// Marks all parameters from two threads, in an order that differs by rank. Some gradients are in their views.
void mark_all(Model& model, int rank, int step) {
  std::vector<size_t> order(kCounts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(rank * 10 + step)));
  const auto mark = [&](size_t first) {
    for (size_t k = first; k < order.size(); k += 2) {
      const size_t p = order[k];
      void* view = nullptr;
      CHECK_OK(dsc_sharded_grad_view(model.sharded, p, &view));
      Floats gradient(kCounts[p]);
      for (size_t i = 0; i < kCounts[p]; ++i) gradient[i] = value(rank, p, i, step);
      const bool in_view = (p + static_cast<size_t>(step)) % 2 == 0;
      if (in_view && kCounts[p] > 0) std::memcpy(view, gradient.data(), kCounts[p] * sizeof(float));
      CHECK_OK(dsc_sharded_mark_ready(model.sharded, p, in_view ? nullptr : gradient.data(), 0, nullptr));
    }
  };
  std::thread helper(mark, 1);
  mark(0);
  helper.join();
}

// Sums over ranks in the order of the library.
float summed(int size, int shard_size, size_t p, size_t i, int step) {
  const int in_group = shard_size == 0 ? size : shard_size;
  float all = 0;
  for (int group = 0; group < size / in_group; ++group) {
    float sum = value(group * in_group, p, i, step);
    for (int r = 1; r < in_group; ++r) sum = sum + value(group * in_group + r, p, i, step);
    all = group == 0 ? sum : all + sum;
  }
  return all;
}

void train(dsc_comm_t* world, int rank, int size, const Rules& rules) {
  Model model(world, rank, rules);
  std::vector<Floats> expected(kCounts.size());
  for (size_t p = 0; p < kCounts.size(); ++p)
    for (size_t i = 0; i < kCounts[p]; ++i) expected[p].push_back(value(0, p, i, 99));
  for (int step = 0; step < 4; ++step) {
    CHECK_OK(dsc_sharded_begin(model.sharded, 0, nullptr));
    mark_all(model, rank, step);
    CHECK_OK(dsc_sharded_finish(model.sharded, nullptr));
    size_t wrong = 0;
    const auto shards = model.shards();
    for (const auto& range : model.ranges()) {
      const auto* grads = static_cast<const float*>(shards[range.bucket].grads) + range.shard_start;
      for (size_t i = 0; i < range.count; ++i)
        wrong += grads[i] != summed(size, rules.shard_size, range.param, range.param_start + i, step);
    }
    CHECK(wrong == 0);
    for (const auto& shard : shards)
      for (size_t i = 0; i < shard.count; ++i)
        static_cast<float*>(shard.params)[i] -= static_cast<const float*>(shard.grads)[i];
    CHECK_OK(dsc_sharded_step_done(model.sharded, 1, nullptr));
    for (size_t p = 0; p < kCounts.size(); ++p)
      for (size_t i = 0; i < kCounts[p]; ++i) expected[p][i] -= summed(size, rules.shard_size, p, i, step);
    for (size_t unit = 0; unit < model.n_units; ++unit) {
      CHECK_OK(dsc_sharded_unshard(model.sharded, unit));
      CHECK_OK(dsc_sharded_wait(model.sharded, unit, nullptr));
      for (size_t p = 0; p < kCounts.size(); ++p) {
        if (model.units[p] != unit) continue;
        void* view = nullptr;
        CHECK_OK(dsc_sharded_param_view(model.sharded, p, &view));
        CHECK(kCounts[p] == 0 || std::memcmp(view, expected[p].data(), kCounts[p] * sizeof(float)) == 0);
      }
      CHECK_OK(dsc_sharded_reshard(model.sharded, unit, nullptr));
    }
  }
}

void trains_in_every_stage_and_layout(void**) {
  for (const int size : {1, 2, 3, 4})
    for (const int32_t stage : {1, 2, 3})
      for (const int32_t layout : {DSC_SHARD_LAYOUT_UNIT, DSC_SHARD_LAYOUT_MEGATRON,
                                   DSC_SHARD_LAYOUT_DEEPSPEED, DSC_SHARD_LAYOUT_PARTITIONED})
        on_ranks(size, [=](dsc_comm_t* world, int rank) {
          train(world, rank, size, {.stage = stage, .layout = layout});
        });
}

void sums_groups_and_then_their_sums(void**) {
  for (const int shard_size : {1, 2})
    for (const int32_t stage : {1, 2, 3})
      on_ranks(4, [=](dsc_comm_t* world, int rank) {
        train(world, rank, 4, {.stage = stage, .shard_size = shard_size});
      });
}

// If max_live_bytes is small, marking a gradient waits for earlier reductions.
void keeps_within_live_bytes(void**) {
  constexpr size_t kLimit = 81'920 + 2 * 4096;  // bytes of the largest unit, and some more
  on_ranks(3, [=](dsc_comm_t* world, int rank) {
    Model model(world, rank, {.stage = 3, .max_live_bytes = kLimit});
    for (int step = 0; step < 5; ++step) {
      CHECK_OK(dsc_sharded_begin(model.sharded, 0, nullptr));
      for (size_t p = kCounts.size(); p-- > 0;) CHECK_OK(dsc_sharded_mark_unused(model.sharded, p));
      CHECK_OK(dsc_sharded_finish(model.sharded, nullptr));
      CHECK_OK(dsc_sharded_step_done(model.sharded, 0, nullptr));
    }
    dsc_sharded_memory_info_t memory{};
    memory.struct_size = sizeof memory;
    CHECK_OK(dsc_sharded_memory_info(model.sharded, &memory));
    CHECK(memory.peak_grad_bytes <= kLimit && memory.peak_param_bytes <= kLimit);
  });
}

// A rank that closes in the middle of an iteration ends it for the other ranks.
void closing_ends_the_iteration_of_others(void**) {
  for (const int shard_size : {0, 2})
    on_ranks(4, [=](dsc_comm_t* world, int rank) {
      Model model(world, rank, {.shard_size = shard_size});
      CHECK_OK(dsc_sharded_begin(model.sharded, 0, nullptr));
      CHECK_OK(dsc_barrier(world, nullptr, nullptr));
      if (rank == 3) {
        CHECK_OK(dsc_sharded_mark_unused(model.sharded, 7));
        return;
      }
      dsc_result_t result = DSC_OK;
      for (size_t p = kCounts.size(); p-- > 0 && result == DSC_OK;)
        result = dsc_sharded_mark_unused(model.sharded, p);
      if (result == DSC_OK) result = dsc_sharded_finish(model.sharded, nullptr);
      CHECK(result == DSC_ERR_REVOKED || result == DSC_ERR_PEER_LEFT);
      CHECK(dsc_sharded_finish(model.sharded, nullptr) != DSC_OK);
    });
}

// Destroying the object on another thread wakes a thread that waits for other ranks.
void destroying_wakes_who_waits(void**) {
  on_ranks(2, [](dsc_comm_t* world, int rank) {
    Model model(world, rank, {});
    if (rank == 1) {
      int32_t last = 0;
      CHECK_OK(dsc_all_reduce(world, &last, &last, 1, DSC_DTYPE_I32, DSC_OP_SUM, nullptr, nullptr));
      return;
    }
    CHECK_OK(dsc_sharded_begin(model.sharded, 0, nullptr));
    for (size_t p = kCounts.size(); p-- > 0;) CHECK_OK(dsc_sharded_mark_unused(model.sharded, p));
    dsc_sharded_t* const sharded = model.sharded;
    std::thread waiting([=] { CHECK(dsc_sharded_finish(sharded, nullptr) == DSC_ERR_REVOKED); });
    usleep(50'000);
    model.sharded = nullptr;
    CHECK_OK(dsc_sharded_destroy(sharded));
    waiting.join();
    int32_t last = 0;
    CHECK_OK(dsc_all_reduce(world, &last, &last, 1, DSC_DTYPE_I32, DSC_OP_SUM, nullptr, nullptr));
  });
}

void refuses_two_calls_at_a_time(void**) {
  on_ranks(2, [](dsc_comm_t* world, int rank) {
    Model model(world, rank, {});
    int32_t turn = 0;
    CHECK_OK(dsc_sharded_begin(model.sharded, 0, nullptr));
    if (rank == 1) CHECK_OK(dsc_recv(world, &turn, 1, DSC_DTYPE_I32, 0, nullptr, nullptr));
    for (size_t p = kCounts.size(); p-- > 0;) CHECK_OK(dsc_sharded_mark_unused(model.sharded, p));
    std::thread finishing([&] { CHECK_OK(dsc_sharded_finish(model.sharded, nullptr)); });
    if (rank == 0) {
      usleep(50'000);
      CHECK_FAILS(dsc_sharded_wait(model.sharded, 0, nullptr), DSC_ERR_BUSY,
                  "another call is using this object");
      CHECK_OK(dsc_send(world, &turn, 1, DSC_DTYPE_I32, 1, nullptr, nullptr));
    }
    finishing.join();
  });
}

void averages_of_both_rules(void**) {
  for (const int32_t average : {DSC_AVERAGE_PRE, DSC_AVERAGE_POST})
    for (const int shard_size : {0, 1, 3})
      on_ranks(3, [=](dsc_comm_t* world, int rank) {
        Model model(world, rank, {.shard_size = shard_size, .average = average});
        CHECK_OK(dsc_sharded_begin(model.sharded, 0, nullptr));
        for (size_t p = kCounts.size(); p-- > 0;) {
          const Floats gradient(kCounts[p], static_cast<float>(rank));
          CHECK_OK(dsc_sharded_mark_ready(model.sharded, p, gradient.data(), DSC_DTYPE_F32, nullptr));
        }
        CHECK_OK(dsc_sharded_finish(model.sharded, nullptr));
        for (const auto& range : model.ranges()) {
          const auto shard = model.shards()[range.bucket];
          CHECK(std::fabs(static_cast<const float*>(shard.grads)[range.shard_start] - 1) < 1e-6F);
        }
      });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(trains_in_every_stage_and_layout),
      cmocka_unit_test(sums_groups_and_then_their_sums),
      cmocka_unit_test(keeps_within_live_bytes),
      cmocka_unit_test(closing_ends_the_iteration_of_others),
      cmocka_unit_test(destroying_wakes_who_waits),
      cmocka_unit_test(refuses_two_calls_at_a_time),
      cmocka_unit_test(averages_of_both_rules),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
