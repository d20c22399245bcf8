// The reducer through the public interface, on the host engine. The ranks are threads of this process.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
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
  const std::string job = "reducer-" + std::to_string(getpid()) + "-" + std::to_string(number++);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(join_and_run, rank, size, job.c_str(), body);
  for (std::thread& thread : threads) thread.join();
  assert_int_equal(complaints.exchange(0), 0);
}

dsc_tensor_t tensor(void* data, size_t count, int32_t dtype, const char* name = nullptr) {
  dsc_tensor_t result{};
  result.struct_size = sizeof result;
  result.data = data;
  result.count = count;
  result.dtype = dtype;
  result.device = -1;
  result.name = name;
  return result;
}

dsc_bucket_reducer_options_t options_with(size_t first_bytes, size_t bytes, int32_t average) {
  dsc_bucket_reducer_options_t options;
  CHECK_OK(dsc_bucket_reducer_options_init(&options, sizeof options));
  options.first_bucket_bytes = first_bytes;
  options.bucket_bytes = bytes;
  options.average = average;
  return options;
}

std::vector<dsc_tensor_t> parameters(const std::vector<size_t>& counts, std::vector<Floats>& values) {
  static const char* const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
  std::vector<dsc_tensor_t> params;
  values.clear();
  for (const size_t count : counts) values.emplace_back(count, 0.5F);
  for (size_t i = 0; i < counts.size(); ++i)
    params.push_back(tensor(values[i].data(), counts[i], DSC_DTYPE_F32, i < 8 ? names[i] : nullptr));
  return params;
}

float gradient_value(int rank, size_t parameter, size_t i, int step) {
  const auto mixed = static_cast<uint32_t>(rank * 7919 + static_cast<int>(parameter) * 104729 +
                                           static_cast<int>(i) * 31 + step) *
                     2654435761U;
  return static_cast<float>(mixed) / 4294967296.0F - 0.3F;
}

float averaged(int size, size_t parameter, size_t i, int step) {
  const auto scale = static_cast<float>(1.0 / size);
  float sum = gradient_value(0, parameter, i, step) * scale;
  for (int rank = 1; rank < size; ++rank) {
    const float next = gradient_value(rank, parameter, i, step) * scale;
    sum = sum + next;
  }
  return sum;
}

void train(dsc_comm_t* world, int rank, int size, const std::vector<size_t>& counts, size_t bucket_bytes) {
  std::vector<Floats> gradients;
  auto params = parameters(counts, gradients);
  const auto options = options_with(bucket_bytes / 4, bucket_bytes, DSC_AVERAGE_PRE);
  dsc_bucket_reducer_t* reducer = nullptr;
  CHECK_OK(dsc_bucket_reducer_create(world, params.data(), params.size(), &options, &reducer));
  std::vector<size_t> order(counts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (int step = 0; step < 4; ++step) {
    for (size_t p = 0; p < counts.size(); ++p)
      for (size_t i = 0; i < counts[p]; ++i) gradients[p][i] = gradient_value(rank, p, i, step);
    std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(rank * 10 + step)));
    CHECK_OK(dsc_bucket_reducer_begin(reducer, nullptr));
    const auto mark = [&](size_t first) {
      for (size_t k = first; k < order.size(); k += 2)
        CHECK_OK(dsc_bucket_reducer_mark_ready(reducer, order[k], gradients[order[k]].data(), nullptr));
    };
    std::thread helper(mark, 1);
    mark(0);
    helper.join();
    CHECK_OK(dsc_bucket_reducer_finish(reducer, nullptr));
    size_t wrong = 0;
    for (size_t p = 0; p < counts.size(); ++p)
      for (size_t i = 0; i < counts[p]; ++i) wrong += gradients[p][i] != averaged(size, p, i, step);
    CHECK(wrong == 0);
  }
  CHECK_OK(dsc_bucket_reducer_destroy(reducer));
}

void reduces_buckets_of_every_size(void**) {
  for (const int size : {1, 2, 3, 4}) {
    on_ranks(size, [size](dsc_comm_t* world, int rank) {
      train(world, rank, size, {3, 1000, 1, 17, 0, 64}, 1000);
      train(world, rank, size, {70'000, 5, 300'000, 20'000}, 100'000);
      train(world, rank, size, std::vector<size_t>(300, 9), 64);
    });
  }
}

void four_tensors_are_one_bucket(void**) {
  on_ranks(2, [](dsc_comm_t* world, int) {
    std::vector<Floats> values;
    auto params = parameters({100, 10, 50, 5}, values);
    dsc_bucket_reducer_t* reducer = nullptr;
    CHECK_OK(dsc_bucket_reducer_create(world, params.data(), params.size(), nullptr, &reducer));
    size_t indices[4];
    size_t starts[5];
    size_t n_buckets = 0;
    CHECK_OK(dsc_bucket_reducer_buckets(reducer, indices, starts, &n_buckets));
    CHECK(n_buckets == 1 && starts[1] == 4 && indices[0] == 0 && indices[3] == 3);
    CHECK_OK(dsc_bucket_reducer_destroy(reducer));
  });
}

void copies_parameters_of_rank_0(void**) {
  on_ranks(3, [](dsc_comm_t* world, int rank) {
    std::vector<Floats> values;
    auto params = parameters({1000, 3, 50'000}, values);
    for (Floats& floats : values) std::ranges::fill(floats, static_cast<float>(rank + 1));
    CHECK_OK(dsc_broadcast_coalesced(world, params.data(), params.size(), 2, 5000));
    for (const Floats& floats : values)
      CHECK(std::ranges::count(floats, 3.0F) == static_cast<ptrdiff_t>(floats.size()));
    for (Floats& floats : values) std::ranges::fill(floats, static_cast<float>(rank + 1));
    dsc_bucket_reducer_t* reducer = nullptr;
    CHECK_OK(dsc_bucket_reducer_create(world, params.data(), params.size(), nullptr, &reducer));
    for (const Floats& floats : values)
      CHECK(std::ranges::count(floats, 1.0F) == static_cast<ptrdiff_t>(floats.size()));
    CHECK_OK(dsc_bucket_reducer_destroy(reducer));
  });
}

void different_models_leave_the_world_working(void**) {
  on_ranks(3, [](dsc_comm_t* world, int rank) {
    std::vector<Floats> values;
    auto params = parameters({6, 7}, values);
    params[1].dtype = rank == 2 ? DSC_DTYPE_BF16 : DSC_DTYPE_F32;
    CHECK_FAILS(dsc_comm_verify_params(world, params.data(), 2), DSC_ERR_MISMATCH,
                "b (index 1) is f32, 7 elements on rank 0");
    dsc_bucket_reducer_t* reducer = nullptr;
    CHECK_FAILS(dsc_bucket_reducer_create(world, params.data(), 2, nullptr, &reducer), DSC_ERR_MISMATCH,
                "bf16");
    CHECK(reducer == nullptr);
    CHECK_FAILS(dsc_comm_verify_params(world, params.data(), rank == 0 ? 2 : 1), DSC_ERR_MISMATCH,
                "ranks 1, 2 have 1");
    params[1].dtype = DSC_DTYPE_F32;
    const auto options = options_with(1, rank == 1 ? 10 : 20, DSC_AVERAGE_PRE);
    CHECK_FAILS(dsc_bucket_reducer_create(world, params.data(), 2, &options, &reducer), DSC_ERR_CONFIG,
                "bucket_bytes is 20 on rank 0 and 10 on rank 1");
    CHECK_OK(dsc_comm_verify_params(world, params.data(), 2));
    CHECK_OK(dsc_bucket_reducer_create(world, params.data(), 2, nullptr, &reducer));
    CHECK_OK(dsc_bucket_reducer_destroy(reducer));
    CHECK_OK(dsc_barrier(world, nullptr, nullptr));
  });
}

void refuses_bad_arguments(void**) {
  on_ranks(1, [](dsc_comm_t* world, int) {
    std::vector<Floats> values;
    auto params = parameters({4, 4}, values);
    dsc_bucket_reducer_t* reducer = nullptr;
    CHECK_FAILS(dsc_comm_verify_params(world, nullptr, 1), DSC_ERR_INVALID_ARG, "params is NULL");
    CHECK_OK(dsc_comm_verify_params(world, nullptr, 0));
    params[1].struct_size += 8;
    CHECK_FAILS(dsc_comm_verify_params(world, params.data(), 2), DSC_ERR_INVALID_ARG,
                "params[1].struct_size is 64");
    params[0].struct_size = 8;
    CHECK_FAILS(dsc_comm_verify_params(world, params.data(), 2), DSC_ERR_INVALID_ARG,
                "params[0].struct_size is 8");
    params[0].struct_size = sizeof(dsc_tensor_t);
    params[1].struct_size = sizeof(dsc_tensor_t);
    params[1].ndim = -1;
    CHECK_FAILS(dsc_comm_verify_params(world, params.data(), 2), DSC_ERR_INVALID_ARG, "params[1].ndim is -1");
    params[1].ndim = 0;
    auto options = options_with(1, 1, DSC_AVERAGE_PRE);
    options.rebuild = 7;
    CHECK_FAILS(dsc_bucket_reducer_create(world, params.data(), 2, &options, &reducer), DSC_ERR_INVALID_ARG,
                "rebuild is 7");
    options.rebuild = DSC_REBUILD_ONCE;
    options.n_buckets = 1;
    CHECK_FAILS(dsc_bucket_reducer_create(world, params.data(), 2, &options, &reducer), DSC_ERR_INVALID_ARG,
                "bucket_indices");
    const size_t starts[] = {0, 2};
    const size_t indices[] = {1, 0};
    options.bucket_indices = indices;
    options.bucket_starts = starts;
    options.n_buckets = 0;
    CHECK_FAILS(dsc_bucket_reducer_create(world, params.data(), 2, &options, &reducer), DSC_ERR_INVALID_ARG,
                "n_buckets is 0");
    CHECK_FAILS(dsc_bucket_reducer_create(world, params.data(), 2, nullptr, nullptr), DSC_ERR_INVALID_ARG,
                "reducer is NULL");
    options.n_buckets = 1;
    CHECK_OK(dsc_bucket_reducer_create(world, params.data(), 2, &options, &reducer));
    int stream = 0;
    CHECK_FAILS(dsc_bucket_reducer_begin(reducer, &stream), DSC_ERR_UNSUPPORTED, "stream");
    CHECK_FAILS(dsc_bucket_reducer_grad_view(reducer, 0, nullptr), DSC_ERR_INVALID_ARG, "view is NULL");
    CHECK_FAILS(dsc_bucket_reducer_begin(reinterpret_cast<dsc_bucket_reducer_t*>(world), nullptr),
                DSC_ERR_BAD_HANDLE, "");
    CHECK_OK(dsc_bucket_reducer_destroy(reducer));
    CHECK_FAILS(dsc_bucket_reducer_begin(reducer, nullptr), DSC_ERR_BAD_HANDLE, "");
    CHECK_FAILS(dsc_bucket_reducer_destroy(reducer), DSC_ERR_BAD_HANDLE, "");
    CHECK_OK(dsc_bucket_reducer_destroy(nullptr));
  });
}

// Makes a reducer of three parameters, each of which is alone in its bucket. The last parameter has the first
// bucket.
dsc_bucket_reducer_t* three_buckets(dsc_comm_t* world, std::vector<Floats>& gradients) {
  auto params = parameters({4, 4, 4}, gradients);
  const auto options = options_with(1, 1, DSC_AVERAGE_PRE);
  dsc_bucket_reducer_t* reducer = nullptr;
  CHECK_OK(dsc_bucket_reducer_create(world, params.data(), 3, &options, &reducer));
  return reducer;
}

void ends_incomplete_alike_everywhere(void**) {
  on_ranks(3, [](dsc_comm_t* world, int rank) {
    std::vector<Floats> gradients;
    dsc_bucket_reducer_t* reducer = three_buckets(world, gradients);
    for (Floats& floats : gradients) std::ranges::fill(floats, static_cast<float>(rank));
    const auto before = gradients;
    for (int round = 0; round < 3; ++round) {
      CHECK_OK(dsc_bucket_reducer_begin(reducer, nullptr));
      CHECK_OK(dsc_bucket_reducer_mark_ready(reducer, 2, gradients[2].data(), nullptr));
      CHECK_FAILS(dsc_bucket_reducer_finish(reducer, nullptr), DSC_ERR_STATE, "a (index 0), b (index 1)");
      CHECK(std::strstr(dsc_last_error_message(), "the views of bucket 0 hold results"));
      CHECK(gradients == before);
    }
    CHECK_OK(dsc_bucket_reducer_begin(reducer, nullptr));
    for (size_t i = 0; i < 3; ++i)
      CHECK_OK(dsc_bucket_reducer_mark_ready(reducer, i, gradients[i].data(), nullptr));
    CHECK_OK(dsc_bucket_reducer_finish(reducer, nullptr));
    CHECK(gradients[0][0] == 0.0F * (1.0F / 3) + 1.0F * (1.0F / 3) + 2.0F * (1.0F / 3));
    CHECK_OK(dsc_bucket_reducer_destroy(reducer));
  });
}

void names_rank_and_parameter(void**) {
  on_ranks(3, [](dsc_comm_t* world, int rank) {
    std::vector<Floats> gradients;
    dsc_bucket_reducer_t* reducer = three_buckets(world, gradients);
    const auto before = gradients;
    CHECK_OK(dsc_bucket_reducer_begin(reducer, nullptr));
    CHECK_OK(dsc_bucket_reducer_mark_ready(reducer, 2, gradients[2].data(), nullptr));
    if (rank == 1) {
      CHECK_FAILS(dsc_bucket_reducer_finish(reducer, nullptr), DSC_ERR_STATE, "2 of 3");
    } else {
      CHECK_OK(dsc_bucket_reducer_mark_ready(reducer, 1, gradients[1].data(), nullptr));
      const dsc_result_t marked = dsc_bucket_reducer_mark_ready(reducer, 0, gradients[0].data(), nullptr);
      const dsc_result_t result = marked == DSC_OK ? dsc_bucket_reducer_finish(reducer, nullptr) : marked;
      CHECK(result == DSC_ERR_MISMATCH || (marked != DSC_OK && result == DSC_ERR_REVOKED));
      CHECK(std::strstr(dsc_last_error_message(), "rank 1"));
      CHECK(std::strstr(dsc_last_error_message(), "b (index 1)"));
    }
    CHECK(gradients == before);
    CHECK_FAILS(dsc_bucket_reducer_begin(reducer, nullptr), DSC_ERR_REVOKED, "b (index 1)");
    CHECK_OK(dsc_bucket_reducer_destroy(reducer));
    CHECK_OK(dsc_barrier(world, nullptr, nullptr));  // only the reducer's own group has ended
  });
}

void destroyed_while_others_reduce(void**) {
  on_ranks(3, [](dsc_comm_t* world, int rank) {
    std::vector<Floats> gradients;
    dsc_bucket_reducer_t* reducer = three_buckets(world, gradients);
    CHECK_OK(dsc_bucket_reducer_begin(reducer, nullptr));
    CHECK_OK(dsc_barrier(world, nullptr, nullptr));
    if (rank != 0) {
      dsc_result_t result = DSC_OK;
      for (size_t i = 0; i < 3 && result == DSC_OK; ++i)
        result = dsc_bucket_reducer_mark_ready(reducer, i, gradients[i].data(), nullptr);
      if (result == DSC_OK) result = dsc_bucket_reducer_finish(reducer, nullptr);
      CHECK(result == DSC_ERR_PEER_LEFT || result == DSC_ERR_REVOKED);
    }
    CHECK_OK(dsc_bucket_reducer_destroy(reducer));
    CHECK_OK(dsc_barrier(world, nullptr, nullptr));
  });
}

// The view is requested after the iteration in which the ranks agreed on other buckets.
void refuses_views_of_replaced_buckets(void**) {
  on_ranks(2, [](dsc_comm_t* world, int rank) {
    std::vector<Floats> gradients;
    dsc_bucket_reducer_t* reducer = three_buckets(world, gradients);
    void* views[3] = {};
    for (int step = 0; step < 2; ++step) {
      CHECK_OK(dsc_bucket_reducer_begin(reducer, nullptr));
      if (step == 1) {
        CHECK_FAILS(dsc_bucket_reducer_mark_ready(reducer, 1, nullptr, nullptr), DSC_ERR_STATE,
                    "b (index 1): the buckets were rebuilt");
        void* const before = views[1];
        CHECK_OK(dsc_bucket_reducer_grad_view(reducer, 1, &views[1]));
        CHECK(views[1] != before);
        std::fill_n(static_cast<float*>(views[1]), 4, static_cast<float>(rank));
      }
      for (size_t i = 0; i < 3; ++i)
        CHECK_OK(dsc_bucket_reducer_mark_ready(reducer, i,
                                               step == 1 && i == 1 ? nullptr : gradients[i].data(), nullptr));
      CHECK_OK(dsc_bucket_reducer_finish(reducer, nullptr));
      CHECK_OK(dsc_bucket_reducer_grad_view(reducer, 1, &views[1]));
      CHECK(*static_cast<float*>(views[1]) == 0.5F);
    }
    CHECK_OK(dsc_bucket_reducer_destroy(reducer));
  });
}

void counts_operations(void**) {
  on_ranks(2, [](dsc_comm_t* world, int) {
    std::vector<Floats> gradients;
    dsc_bucket_reducer_t* reducer = three_buckets(world, gradients);
    CHECK_OK(dsc_bucket_reducer_begin(reducer, nullptr));
    for (size_t i = 0; i < 3; ++i)
      CHECK_OK(dsc_bucket_reducer_mark_ready(reducer, i, gradients[i].data(), nullptr));
    CHECK_OK(dsc_bucket_reducer_finish(reducer, nullptr));
    std::vector<dsc_op_stats_t> stats(32);
    stats[0].struct_size = sizeof(dsc_op_stats_t);
    size_t count = 0;
    CHECK_OK(dsc_bucket_reducer_stats(reducer, stats.data(), stats.size(), &count));
    uint64_t reductions = 0;
    for (size_t i = 0; i < std::min(count, stats.size()); ++i)
      if (std::strcmp(stats[i].operation, "all_reduce") == 0) reductions += stats[i].count;
    CHECK(reductions == 3);
    CHECK_OK(dsc_bucket_reducer_destroy(reducer));
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(reduces_buckets_of_every_size),
      cmocka_unit_test(four_tensors_are_one_bucket),
      cmocka_unit_test(copies_parameters_of_rank_0),
      cmocka_unit_test(different_models_leave_the_world_working),
      cmocka_unit_test(refuses_bad_arguments),
      cmocka_unit_test(ends_incomplete_alike_everywhere),
      cmocka_unit_test(names_rank_and_parameter),
      cmocka_unit_test(destroyed_while_others_reduce),
      cmocka_unit_test(refuses_views_of_replaced_buckets),
      cmocka_unit_test(counts_operations),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
