// Iterations of the reducer on ranks that are threads: sums bit for bit, and every way in which an iteration
// can fail.
#include <algorithm>
#include <barrier>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "reducer_support.hpp"

namespace {

enum class How { kCopied, kView, kNull, kAccumulated, kAccumulatedThenMore, kUnused };
constexpr How kHows[] = {How::kCopied, How::kView, How::kNull, How::kAccumulated, How::kAccumulatedThenMore,
                         How::kUnused};

// How a parameter's gradient is passed. It is the same on all ranks, except for unused parameters.
How how_of(size_t index, int rank, int step) {
  const How how = kHows[(index + static_cast<size_t>(step)) % std::size(kHows)];
  return how == How::kUnused && rank % 2 == 0 ? How::kCopied : how;
}

bool is_copied(How how) { return how == How::kCopied || how == How::kAccumulatedThenMore; }

// Returns the gradient that a rank contributes to the sum, computed by plain arithmetic.
Bytes contribution(const Tensor& param, int rank, size_t index, int step) {
  const How how = how_of(index, rank, step);
  Bytes last = gradient_of(param.dtype, param.count, rank, index, step);
  if (how == How::kUnused) return Bytes(last.size());
  if (how != How::kAccumulated && how != How::kAccumulatedThenMore) return last;
  const Bytes first = gradient_of(param.dtype, param.count, rank, index, step + 100);
  const Bytes second = gradient_of(param.dtype, param.count, rank, index, step + 200);
  const Bytes sum = combined(param.dtype, {DSC_OP_SUM}, {first, second});
  return how == How::kAccumulated ? sum : combined(param.dtype, {DSC_OP_SUM}, {sum, last});
}

void give_gradient(Reducer& reducer, Model& model, int rank, size_t index, int step) {
  const Tensor& param = model[index];
  const How how = how_of(index, rank, step);
  model.gradients[index] = gradient_of(param.dtype, param.count, rank, index, step);
  void* view = reducer.grad_view(index);
  if (how == How::kUnused) return reducer.mark_unused(index);
  if (how == How::kAccumulated || how == How::kAccumulatedThenMore) {
    reducer.accumulate(index, gradient_of(param.dtype, param.count, rank, index, step + 100).data());
    reducer.accumulate(index, gradient_of(param.dtype, param.count, rank, index, step + 200).data());
  }
  if ((how == How::kView || how == How::kNull) && param.bytes() > 0)
    std::memcpy(view, model.gradient(index), param.bytes());
  if (is_copied(how)) return reducer.mark_ready(index, model.gradient(index));
  reducer.mark_ready(index, how == How::kView ? view : nullptr);
}

void check_results(Reducer& reducer, Model& model, Comm& comm, int32_t average, int step) {
  for (size_t i = 0; i < model.size(); ++i) {
    std::vector<Bytes> inputs;
    for (int rank = 0; rank < comm.size(); ++rank) inputs.push_back(contribution(model[i], rank, i, step));
    // A gradient that is copied may be scaled by another rule than one that is made in its view. Rank 0
    // always has a gradient, so its way of passing the gradient selects the rule. A rank without a gradient
    // contributes zeros, for which both rules give the same result.
    const bool copied = is_copied(how_of(i, 0, step));
    const Bytes result = expected(model[i].dtype, average, copied, inputs);
    CHECK(result.empty() || std::memcmp(reducer.grad_view(i), result.data(), result.size()) == 0);
    if (is_copied(how_of(i, comm.rank(), step))) CHECK(model.gradients[i] == result);
  }
}

// Every rank marks in a different order, from the given number of threads.
void iterate(Reducer& reducer, Model& model, Comm& comm, int32_t average, int step, size_t threads) {
  std::vector<size_t> order(model.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(comm.rank() * 100 + step)));
  reducer.begin();
  const auto mark = [&](size_t first) {
    for (size_t k = first; k < order.size(); k += threads)
      give_gradient(reducer, model, comm.rank(), order[k], step);
  };
  std::vector<std::thread> helpers;
  for (size_t t = 1; t < threads; ++t) helpers.emplace_back(mark, t);
  mark(0);
  for (std::thread& helper : helpers) helper.join();
  reducer.finish();
  check_results(reducer, model, comm, average, step);
}

void sums_bit_for_bit(void**) {
  for (const int size : {1, 2, 3, 4}) {
    for (const int32_t average : {DSC_AVERAGE_PRE, DSC_AVERAGE_POST, DSC_AVERAGE_NONE, DSC_AVERAGE_PYTORCH}) {
      on_ranks(size, [average](Comm& comm) {
        Model model({7, 100, 1, 33, 0, 64, 5, 1000, 3, 17, 250, 2},
                    {DSC_DTYPE_F32, DSC_DTYPE_F64, DSC_DTYPE_F16, DSC_DTYPE_BF16});
        ReducerOptions options;
        options.bucket_bytes = 600;
        options.first_bucket_bytes = 40;
        options.average = average;
        const auto reducer = Reducer::create(comm, model.params, options);
        for (int step = 0; step < 6; ++step)
          iterate(*reducer, model, comm, average, step, step % 2 == 0 ? 1 : 3);
      });
    }
  }
}

void sums_integers_plainly(void**) {
  on_ranks(3, [](Comm& comm) {
    Model model({9, 4, 70}, {DSC_DTYPE_I32, DSC_DTYPE_I64});
    ReducerOptions options;
    options.average = DSC_AVERAGE_NONE;
    iterate(*Reducer::create(comm, model.params, options), model, comm, DSC_AVERAGE_NONE, 1, 1);
    options.average = DSC_AVERAGE_PRE;
    CHECK_FAILS(Reducer::create(comm, model.params, options), DSC_ERR_UNSUPPORTED, "a (index 0)", "i32");
  });
}

void refuses_wrong_calls(void**) {
  on_ranks(1, [](Comm& comm) {
    Model model({4, 4, 4}, {DSC_DTYPE_F32});
    const auto reducer = Reducer::create(comm, model.params, {});
    CHECK_FAILS(reducer->mark_ready(0, nullptr), DSC_ERR_STATE, "begin");
    CHECK_FAILS(reducer->mark_unused(0), DSC_ERR_STATE, "begin");
    CHECK_FAILS(reducer->accumulate(0, model.gradient(0)), DSC_ERR_STATE, "begin");
    CHECK_FAILS(reducer->finish(), DSC_ERR_STATE, "begin");
    CHECK_FAILS(reducer->grad_view(3), DSC_ERR_INVALID_ARG, "index is 3");

    reducer->begin();
    CHECK_FAILS(reducer->mark_ready(3, nullptr), DSC_ERR_INVALID_ARG, "index is 3", "0 to 2");
    CHECK_FAILS(reducer->accumulate(3, model.gradient(0)), DSC_ERR_INVALID_ARG, "the index of a parameter");
    CHECK_FAILS(reducer->mark_unused(SIZE_MAX), DSC_ERR_INVALID_ARG, "the index of a parameter");
    CHECK_FAILS(reducer->accumulate(0, nullptr), DSC_ERR_INVALID_ARG, "NULL");
    CHECK_FAILS(reducer->accumulate(0, reducer->grad_view(0)), DSC_ERR_INVALID_ARG, "a (index 0)");
    CHECK_FAILS(reducer->mark_ready(0, reducer->grad_view(1)), DSC_ERR_INVALID_ARG, "this parameter's view");
    CHECK_FAILS(reducer->mark_ready(0, static_cast<char*>(reducer->grad_view(0)) + 4), DSC_ERR_INVALID_ARG,
                "this parameter's view");
    reducer->mark_ready(0, model.gradient(0));
    CHECK_FAILS(reducer->mark_ready(0, model.gradient(0)), DSC_ERR_STATE, "already marked", "a (index 0)");
    CHECK_FAILS(reducer->mark_unused(0), DSC_ERR_STATE, "already marked");
    CHECK_FAILS(reducer->accumulate(0, model.gradient(0)), DSC_ERR_STATE, "a (index 0)");
    CHECK_FAILS(reducer->mark_ready(1, model.gradient(0)), DSC_ERR_INVALID_ARG, "b (index 1)", "overlaps",
                "a (index 0)");
    CHECK_FAILS(reducer->mark_ready(1, model.gradients[0].data() + 12), DSC_ERR_INVALID_ARG, "overlaps");
    reducer->accumulate(1, model.gradient(1));
    CHECK_FAILS(reducer->mark_unused(1), DSC_ERR_STATE, "accumulated");
    CHECK_FAILS(reducer->begin(), DSC_ERR_STATE,
                "an iteration is open, expected dsc_bucket_reducer_finish() first",
                "rank 0: b (index 1), c (index 2)");
    reducer->mark_ready(1, nullptr);
    reducer->mark_unused(2);
    CHECK_FAILS(reducer->begin(), DSC_ERR_STATE, "all parameters are ready");
    reducer->finish();
    CHECK_FAILS(reducer->finish(), DSC_ERR_STATE, "begin");

    reducer->begin();  // each iteration may use other memory for the gradients
    reducer->mark_ready(0, model.gradient(1));
    reducer->mark_ready(1, model.gradient(0));
    reducer->mark_ready(2, model.gradient(2));
    reducer->finish();
  });
}

// All ranks miss gradients of the same bucket. The iteration then ends in the same way on all ranks, nothing
// is written, and the next iteration works.
void ends_incomplete_everywhere(void**) {
  on_ranks(3, [](Comm& comm) {
    Model model({4, 4, 4}, {DSC_DTYPE_F32});
    ReducerOptions options;
    options.bucket_bytes = options.first_bucket_bytes = 16;
    const auto reducer = Reducer::create(comm, model.params, options);  // the buckets are c, b, a
    for (int round = 0; round < 3; ++round) {
      reducer->begin();
      for (size_t i = 0; i < 3; ++i)
        model.gradients[i] = gradient_of(DSC_DTYPE_F32, 4, comm.rank(), i, round);
      const auto before = model.gradients;
      reducer->mark_ready(2, model.gradient(2));
      reducer->mark_ready(0, model.gradient(0));
      CHECK_FAILS(reducer->finish(), DSC_ERR_STATE, "1 of 3 parameters did not receive a gradient",
                  ("on rank " + std::to_string(comm.rank()) + ": b (index 1)").c_str(),
                  "the views of bucket 0 hold results");
      CHECK(model.gradients == before);
      const Bytes sum =
          expected(DSC_DTYPE_F32, DSC_AVERAGE_PRE, true,
                   {gradient_of(DSC_DTYPE_F32, 4, 0, 2, round), gradient_of(DSC_DTYPE_F32, 4, 1, 2, round),
                    gradient_of(DSC_DTYPE_F32, 4, 2, 2, round)});
      CHECK(std::memcmp(reducer->grad_view(2), sum.data(), sum.size()) == 0);
      CHECK_FAILS(reducer->mark_ready(1, nullptr), DSC_ERR_STATE, "begin");
    }
    reducer->begin();
    CHECK_FAILS(reducer->finish(), DSC_ERR_STATE, "3 of 3", "no bucket was reduced");
    iterate(*reducer, model, comm, DSC_AVERAGE_PRE, 0, 1);
  });
}

void names_the_rank_that_misses_one(void**) {
  on_ranks(3, [](Comm& comm) {
    Model model({4, 4, 4}, {DSC_DTYPE_F32});
    ReducerOptions options;
    options.bucket_bytes = options.first_bucket_bytes = 16;
    const auto reducer = Reducer::create(comm, model.params, options);
    reducer->begin();
    const auto before = model.gradients;
    reducer->mark_ready(2, model.gradient(2));
    if (comm.rank() != 1) {
      reducer->mark_ready(1, model.gradient(1));
      // The reduction may have failed already. Then this call is the first to report it.
      try {
        reducer->mark_ready(0, model.gradient(0));
      } catch (const dsc::Error& error) {
        CHECK(error.code() == DSC_ERR_MISMATCH);
      }
      try {
        reducer->finish();
        CHECK(false);
      } catch (const dsc::Error& error) {
        CHECK(error.code() == DSC_ERR_MISMATCH || error.code() == DSC_ERR_STATE);
        CHECK(std::strstr(error.what(), "; rank 1: reducer_finish(no gradient: b (index 1))"));
      }
    } else {
      CHECK_FAILS(reducer->finish(), DSC_ERR_STATE, "2 of 3", "a (index 0), b (index 1)",
                  "the reducer is revoked");
    }
    CHECK(model.gradients == before);
    CHECK_FAILS(reducer->begin(), DSC_ERR_REVOKED, "no gradient: b (index 1)");
    CHECK_FAILS(reducer->mark_ready(0, nullptr), DSC_ERR_REVOKED);
    CHECK_FAILS(reducer->accumulate(0, model.gradient(0)), DSC_ERR_REVOKED);
    CHECK_FAILS(reducer->mark_unused(0), DSC_ERR_REVOKED);
    CHECK_FAILS(reducer->finish(), DSC_ERR_REVOKED);
  });
}

void names_as_many_as_fit(void**) {
  on_ranks(1, [](Comm& comm) {
    std::vector<Tensor> params(1000);
    const std::string name(150, 'x');
    for (Tensor& param : params) {
      param.dtype = DSC_DTYPE_F32;
      param.name = name.c_str();
    }
    const auto reducer = Reducer::create(comm, params, {});
    reducer->begin();
    CHECK_FAILS(reducer->finish(), DSC_ERR_STATE, "1000 of 1000", "xxx... (index 0) and 999 more",
                "no bucket was reduced");
  });
}

void starts_again_what_could_not_start(void**) {
  on_ranks(1, [](Comm& comm) {
    Model model({4, 4, 4}, {DSC_DTYPE_F32});
    ReducerOptions options;
    options.bucket_bytes = options.first_bucket_bytes = 16;
    const auto reducer = Reducer::create(comm, model.params, options);
    reducer->begin();
    conformance::refuse_starts(2);
    CHECK_FAILS(reducer->mark_ready(2, model.gradient(2)), DSC_ERR_NOMEM);
    CHECK_FAILS(reducer->mark_ready(1, model.gradient(1)), DSC_ERR_NOMEM);
    reducer->mark_ready(0, model.gradient(0));
    reducer->finish();
    reducer->begin();
    conformance::refuse_starts(1);
    for (const size_t i : {0, 1}) reducer->mark_ready(i, model.gradient(i));
    CHECK_FAILS(reducer->mark_ready(2, model.gradient(2)), DSC_ERR_NOMEM);
    reducer->finish();
  });
}

// A rank that closes its reducer ends the reduction for all ranks, even for one that is inside finish().
void closes_while_reducing(void**) {
  std::barrier begun(3);
  on_ranks(3, [&begun](Comm& comm) {
    Model model({4, 4}, {DSC_DTYPE_F32});
    const auto reducer = Reducer::create(comm, model.params, {});
    reducer->begin();
    begun.arrive_and_wait();
    if (comm.rank() == 0) return;  // the reducer is destroyed here
    for (size_t i = 0; i < 2; ++i) {
      try {
        reducer->mark_ready(i, model.gradient(i));
      } catch (const dsc::Error& error) {
        // PEER_LEFT from the first operation that failed, REVOKED from a later one
        CHECK(error.code() == DSC_ERR_PEER_LEFT || error.code() == DSC_ERR_REVOKED);
      }
    }
    std::thread closer([&] {
      if (comm.rank() == 1) reducer->close();
    });
    try {
      reducer->finish();
      CHECK(false);
    } catch (const dsc::Error& error) {
      CHECK(error.code() != DSC_OK && error.code() != DSC_ERR_TIMEOUT);
    }
    closer.join();
    CHECK_FAILS(reducer->begin(), DSC_ERR_REVOKED);
  });
}

// Buckets are reduced in their order for any order of the marks, so that ranks never reduce different buckets
// together.
void many_threads_mark_many_parameters(void**) {
  on_ranks(4, [](Comm& comm) {
    std::vector<size_t> counts(26, 3);
    Model model(counts, {DSC_DTYPE_F32});
    ReducerOptions options;
    options.bucket_bytes = options.first_bucket_bytes = 20;
    const auto reducer = Reducer::create(comm, model.params, options);
    for (int step = 0; step < 50; ++step) iterate(*reducer, model, comm, DSC_AVERAGE_PRE, step, 4);
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(sums_bit_for_bit),
      cmocka_unit_test(sums_integers_plainly),
      cmocka_unit_test(refuses_wrong_calls),
      cmocka_unit_test(ends_incomplete_everywhere),
      cmocka_unit_test(names_the_rank_that_misses_one),
      cmocka_unit_test(names_as_many_as_fit),
      cmocka_unit_test(starts_again_what_could_not_start),
      cmocka_unit_test(closes_while_reducing),
      cmocka_unit_test(many_threads_mark_many_parameters),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
