// Creation of the reducer: agreement between ranks, buckets, the broadcast, and the ranges of memory.
#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/verify.hpp"
#include "gradients/range_set.hpp"
#include "reducer_support.hpp"
#include "repetitions.h"
#include "tensor_list/coalesced.hpp"

namespace {

std::vector<std::vector<size_t>> buckets(const Reducer& reducer) {
  std::vector<std::vector<size_t>> result;
  const dsc::BucketPlan plan = reducer.plan();
  for (size_t b = 0; b < plan.buckets(); ++b) {
    const auto bucket = plan.bucket(b);
    result.emplace_back(bucket.begin(), bucket.end());
  }
  return result;
}

void plans_buckets(void**) {
  using Buckets = std::vector<std::vector<size_t>>;
  on_ranks(2, [](Comm& comm) {
    Model model({10, 10, 10, 10, 10, 10}, {DSC_DTYPE_F32});
    ReducerOptions options;
    options.first_bucket_bytes = 40;
    options.bucket_bytes = 80;
    const auto planned = Reducer::create(comm, model.params, options);
    CHECK(buckets(*planned) == (Buckets{{5}, {3, 4}, {1, 2}, {0}}));
    // Gradients are packed inside a bucket. Every bucket begins at a multiple of 128 bytes.
    const auto* first = static_cast<char*>(planned->grad_view(3));
    CHECK(static_cast<char*>(planned->grad_view(4)) == first + 40);
    CHECK(reinterpret_cast<uintptr_t>(first) % 128 == 0);
    CHECK(planned->grad_view(3) == first);

    options.single_first_bucket = 1;
    CHECK(buckets(*Reducer::create(comm, model.params, options)) == (Buckets{{0, 1, 2, 3, 4, 5}}));

    const std::vector<size_t> indices{4, 5, 0, 1, 2, 3};
    const std::vector<size_t> starts{0, 1, 4, 6};
    options.bucket_indices = indices.data();
    options.bucket_starts = starts;
    CHECK(buckets(*Reducer::create(comm, model.params, options)) == (Buckets{{4}, {5, 0, 1}, {2, 3}}));
  });
}

void refuses_explicit_buckets(void**) {
  on_ranks(2, [](Comm& comm) {
    Model model({1, 1, 1}, {DSC_DTYPE_F32, DSC_DTYPE_F64});
    const auto create = [&](std::vector<size_t> indices, std::vector<size_t> starts) {
      ReducerOptions options;
      options.bucket_indices = indices.data();
      options.bucket_starts = starts;
      Reducer::create(comm, model.params, options);
    };
    CHECK_FAILS(create({0, 2, 1}, {0, 2, 2, 3}), DSC_ERR_INVALID_ARG, "bucket 1 is empty");
    CHECK_FAILS(create({0, 1, 2}, {0, 2, 3}), DSC_ERR_INVALID_ARG, "same dtype", "f32 and f64 (b (index 1))");
    CHECK_FAILS(create({0, 0, 1}, {0, 2, 3}), DSC_ERR_INVALID_ARG, "repeats a (index 0)");
    CHECK_FAILS(create({0, 1}, {0, 1, 2}), DSC_ERR_INVALID_ARG, "no bucket has c (index 2)");
    CHECK_FAILS(create({0, 3, 1}, {0, 2, 3}), DSC_ERR_INVALID_ARG, "parameter 3");
    CHECK_FAILS(create({0, 1, 2}, {1, 3}), DSC_ERR_INVALID_ARG, "bucket_starts[0]");
    CHECK_FAILS(create({0, 1, 2}, {0, 2, 1}), DSC_ERR_INVALID_ARG, "bucket_starts[2]");
    create({0, 2, 1}, {0, 2, 3});  // the communicator still works after the error
  });
}

void verifies_parameters(void**) {
  on_ranks(3, [](Comm& comm) {
    const int rank = comm.rank();
    Model model({6, 6, 6}, {DSC_DTYPE_F32});
    const std::vector<int64_t> shape{2, 3};
    const std::vector<int64_t> other{3, 2};
    for (Tensor& tensor : model.params) {
      tensor.shape = shape;
      tensor.has_shape = true;
    }
    dsc::verify_params(comm, model.params);
    const std::span params = model.params;
    CHECK_FAILS(dsc::verify_params(comm, params.first(rank == 1 ? 2 : 3)), DSC_ERR_MISMATCH,
                "rank 0 has 3 parameters and rank 1 has 2");
    CHECK_FAILS(dsc::verify_params(comm, params.first(rank == 0 ? 0 : 3)), DSC_ERR_MISMATCH,
                "rank 0 has 0 parameters and ranks 1, 2 have 3");
    if (rank == 2) model[1].dtype = DSC_DTYPE_BF16;
    CHECK_FAILS(dsc::verify_params(comm, params), DSC_ERR_MISMATCH, "b (index 1)", "f32 [2, 3] on rank 0",
                "bf16 [2, 3] on rank 2");
    model[1].dtype = DSC_DTYPE_F32;
    if (rank != 0) model[2].shape = other;
    CHECK_FAILS(dsc::verify_params(comm, params), DSC_ERR_MISMATCH, "c (index 2)", "f32 [2, 3] on rank 0",
                "f32 [3, 2] on ranks 1, 2");
    model[2].shape = shape;
    model[2].has_shape = rank != 1;
    CHECK_FAILS(dsc::verify_params(comm, params), DSC_ERR_MISMATCH, "f32, 6 elements on rank 1");
    model[2].has_shape = true;
    model[0].count = 7;
    CHECK_FAILS(dsc::verify_params(comm, params), DSC_ERR_INVALID_ARG, "a (index 0)", "7 elements");
    model[0].count = 6;
    dsc::verify_params(comm, params);
    dsc::verify_params(comm, {});
  });
}

void compares_options(void**) {
  on_ranks(3, [](Comm& comm) {
    const int rank = comm.rank();
    Model model({6, 6}, {DSC_DTYPE_F32});
    const auto create = [&](auto change) {
      ReducerOptions options;
      change(options);
      Reducer::create(comm, model.params, options);
    };
    CHECK_FAILS(create([&](auto& o) { o.bucket_bytes = rank == 1 ? 100 : 200; }), DSC_ERR_CONFIG,
                "bucket_bytes is 200 on rank 0 and 100 on rank 1");
    CHECK_FAILS(create([&](auto& o) { o.average = rank == 0 ? 1 : 2; }), DSC_ERR_CONFIG,
                "average is 1 on rank 0 and 2 on ranks 1, 2");
    const std::vector<size_t> indices{rank == 2 ? size_t{1} : 0, rank == 2 ? size_t{0} : 1};
    const std::vector<size_t> starts{0, 1, 2};
    CHECK_FAILS(create([&](auto& o) {
                  o.bucket_indices = indices.data();
                  o.bucket_starts = starts;
                }),
                DSC_ERR_CONFIG, "bucket 0 is 0 on rank 0 and 1 on rank 2");
    CHECK_FAILS(create([&](auto& o) { o.average = 5; }), DSC_ERR_INVALID_ARG, "average is 5");
    CHECK_FAILS(create([&](auto& o) { o.sync = 2; }), DSC_ERR_INVALID_ARG, "sync is 2");
    CHECK_FAILS(create([&](auto& o) { o.single_first_bucket = -1; }), DSC_ERR_INVALID_ARG,
                "single_first_bucket is -1");
    CHECK_FAILS(Reducer::create(comm, {}, {}), DSC_ERR_INVALID_ARG, "n_params is 0");
    void* data = std::exchange(model[1].data, nullptr);
    CHECK_FAILS(create([](auto&) {}), DSC_ERR_INVALID_ARG, "b (index 1): data is NULL");
    create([](auto& o) { o.sync = 0; });
    if (rank == 0) model[1].data = data;
    CHECK_FAILS(create([](auto&) {}), DSC_ERR_CONFIG, "none on rank 0", "data is NULL on ranks 1, 2");
    model[1].data = data;
    model[1].device = 0;
    CHECK_FAILS(create([](auto&) {}), DSC_ERR_UNSUPPORTED, "device is 0");
    model[1].device = -1;
    model[1].expect_sparse = 2;
    CHECK_FAILS(create([](auto&) {}), DSC_ERR_INVALID_ARG, "expect_sparse is 2, expected 0 or 1");
    model[1].expect_sparse = 1;
    CHECK_FAILS(create([](auto&) {}), DSC_ERR_INVALID_ARG, "no shape");
    if (rank == 0) model[1].expect_sparse = 0;
    CHECK_FAILS(create([](auto&) {}), DSC_ERR_MISMATCH, "sparse");
  });
}

void broadcasts_coalesced(void**) {
  for (const int size : {1, 2, 4}) {
    for (const size_t buffer_bytes : {size_t{1}, size_t{100}, size_t{1000}, size_t{0}}) {
      on_ranks(size, [&](Comm& comm) {
        const int root = comm.size() - 1;
        Model model({3, 50, 0, 7, 200, 1, 1, 30},
                    {DSC_DTYPE_F32, DSC_DTYPE_U8, DSC_DTYPE_I64, DSC_DTYPE_F32, DSC_DTYPE_BOOL});
        const auto content = [&](size_t i, int rank) {
          Bytes bytes(model.values[i].size());
          for (size_t k = 0; k < bytes.size(); ++k)
            bytes[k] = static_cast<char>(k * 7 + i * 31 + static_cast<size_t>(rank));
          return bytes;
        };
        for (size_t i = 0; i < model.size(); ++i) {
          model.values[i] = content(i, comm.rank());
          model[i].data = model.values[i].data();
        }
        dsc::broadcast_coalesced(comm, model.params, root, buffer_bytes);
        for (size_t i = 0; i < model.size(); ++i) CHECK(model.values[i] == content(i, root));
        dsc::broadcast_coalesced(comm, {}, 0, 0);
        CHECK_FAILS(dsc::broadcast_coalesced(comm, model.params, comm.size(), 0), DSC_ERR_INVALID_ARG,
                    "root is");
        CHECK_FAILS(dsc::broadcast_coalesced(comm, model.params, -1, 0), DSC_ERR_INVALID_ARG, "root is -1");
      });
    }
  }
}

// Different tensors must be noticed even if the sums of their counts are equal. The other ranks must not use
// the root's tensors instead.
void notices_different_tensors_in_broadcast(void**) {
  on_ranks(2, [](Comm& comm) {
    Model model(comm.rank() == 0 ? std::vector<size_t>{2, 4} : std::vector<size_t>{4, 2}, {DSC_DTYPE_F32});
    const auto before = model.values;
    CHECK_FAILS(dsc::broadcast_coalesced(comm, model.params, 0, 0), DSC_ERR_MISMATCH);
    CHECK(model.values == before);
  });
}

void copies_parameters_at_creation(void**) {
  on_ranks(3, [](Comm& comm) {
    Model model({5, 6}, {DSC_DTYPE_F32, DSC_DTYPE_I32});
    for (size_t i = 0; i < 2; ++i) std::ranges::fill(model.values[i], static_cast<char>(comm.rank() + 1));
    ReducerOptions options;
    options.average = DSC_AVERAGE_NONE;
    options.sync = 0;
    Reducer::create(comm, model.params, options);
    CHECK(model.values[1] == Bytes(24, static_cast<char>(comm.rank() + 1)));
    options.sync = 1;
    Reducer::create(comm, model.params, options);
    CHECK(model.values[0] == Bytes(20, 1) && model.values[1] == Bytes(24, 1));
  });
}

// Compares with a check of every pair of ranges. The memory is small enough that many ranges overlap.
void finds_overlapping_gradients(void**) {
  constexpr size_t kOwners = 12;
  std::mt19937 random(1);
  dsc::RangeSet ranges(kOwners);
  const int iterations = test_repetitions(2000, 200);
  for (int iteration = 0; iteration < iterations; ++iteration) {
    std::vector<std::pair<size_t, size_t>> taken;
    for (size_t owner = 0; owner < kOwners; ++owner) {
      const size_t begin = iteration % 3 == 0 ? 100 + owner * 8 : 100 + random() % 100;
      const size_t bytes = random() % 9;
      const bool free = bytes == 0 || std::ranges::none_of(taken, [&](auto t) {
                          return begin < t.first + t.second && t.first < begin + bytes;
                        });
      const auto other = ranges.add(owner, reinterpret_cast<void*>(begin), bytes);
      assert_int_equal(!other.has_value(), free);
      if (free && bytes > 0) taken.emplace_back(begin, bytes);
    }
    ranges.next_iteration();
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(plans_buckets),
      cmocka_unit_test(refuses_explicit_buckets),
      cmocka_unit_test(verifies_parameters),
      cmocka_unit_test(compares_options),
      cmocka_unit_test(broadcasts_coalesced),
      cmocka_unit_test(notices_different_tensors_in_broadcast),
      cmocka_unit_test(copies_parameters_at_creation),
      cmocka_unit_test(finds_overlapping_gradients),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
