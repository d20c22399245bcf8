// The gradient intake knows which gradients of an iteration exist. Tested: marks from several threads, sums,
// marks that are taken back, static graphs.
#include <future>
#include <stdexcept>
#include <vector>

#include "gradients/intake.hpp"
#include "reducer_support.hpp"

using dsc::GradientIntake;
using dsc::MutexLock;

namespace {

dsc::ParamList list_of(size_t count) {
  std::vector<Tensor> params(count);
  for (Tensor& param : params) {
    param.count = 4;
    param.dtype = DSC_DTYPE_F32;
  }
  return {params, 0};
}

struct Intake {
  explicit Intake(size_t params, bool static_graph = false)
      : list(list_of(params)), gradients(list, static_graph) {}

  void begin(bool local = false) {
    const MutexLock lock(gradients.mutex);
    gradients.begin(local);
  }
  bool mark(size_t index, void* gradient = nullptr) {
    bool complete = false;
    {
      const MutexLock lock(gradients.mutex);
      complete = gradients.accept(index, {gradient, 16, nullptr});
    }
    gradients.scope();  // the returned scope ends immediately
    return complete;
  }
  void finish() {
    gradients.stop(*world[0]);
    const MutexLock lock(gradients.mutex);
    gradients.end_usage();
    gradients.end();
  }
  std::vector<size_t> order() {
    const MutexLock lock(gradients.mutex);
    return gradients.marks().usage().ready_order();
  }

  const std::vector<std::shared_ptr<Comm>> world = conformance::make_world(1, 200);
  const dsc::ParamList list;
  GradientIntake gradients;
};

// A mark whose gradient could not be copied leaves no trace.
void takes_a_mark_back(void**) {
  Intake intake(2);
  intake.begin();
  assert_true(intake.mark(1));
  assert_true(intake.mark(0));
  CHECK_FAILS(intake.gradients.run(1, [] { throw std::bad_alloc(); }), DSC_ERR_NOMEM);
  assert_true(intake.gradients.missing() == std::vector<size_t>{1});
  assert_true(intake.order() == std::vector<size_t>{0});
  assert_true(intake.mark(1));
  assert_true(intake.order() == (std::vector<size_t>{0, 1}));
  CHECK_FAILS(intake.mark(1), DSC_ERR_STATE, "already marked as ready", "parameter 1");
  intake.finish();
  assert_int_equal(complaints.exchange(0), 0);
}

void counts_a_sum_only_when_it_was_made(void**) {
  Intake intake(1);
  const auto accept = [&] {
    const MutexLock lock(intake.gradients.mutex);
    return intake.gradients.accept_sum(0, &intake, 16);
  };
  intake.begin();
  assert_false(accept());
  CHECK_FAILS(accept(), DSC_ERR_STATE, "is being accumulated by another thread");
  CHECK_FAILS(intake.gradients.add(0, [] { throw std::bad_alloc(); }), DSC_ERR_NOMEM);
  intake.gradients.scope();
  assert_false(accept());
  intake.gradients.add(0, [] {});
  intake.gradients.scope();
  assert_true(intake.gradients.has_sum(0));
  const auto unused = [&] {
    const MutexLock lock(intake.gradients.mutex);
    return intake.gradients.accept_unused(0);
  };
  CHECK_FAILS(unused(), DSC_ERR_STATE, "has an accumulated gradient, so it is not unused");
  assert_true(intake.mark(0));
  intake.finish();
  assert_int_equal(complaints.exchange(0), 0);
}

// stop() refuses further marks. If a running mark does not end, stop() gives up and marks are accepted again.
void stops_when_all_marks_have_ended(void**) {
  Intake intake(2);
  CHECK_FAILS(intake.mark(0), DSC_ERR_STATE, "no iteration is open");
  intake.begin();
  {
    const MutexLock lock(intake.gradients.mutex);
    intake.gradients.accept(0, {});
  }
  {
    const auto scope = intake.gradients.scope();
    CHECK_FAILS(intake.gradients.stop(*intake.world[0]), DSC_ERR_TIMEOUT,
                "still marking a parameter after 200 ms");
    assert_true(intake.gradients.is_open());
    std::promise<void> closed;
    auto marking = std::async(std::launch::async, [&] {
      closed.get_future().wait();
      CHECK_FAILS(intake.mark(1), DSC_ERR_STATE, "dsc_bucket_reducer_finish() is running in another thread");
    });
    auto stopping = std::async(std::launch::async, [&] { intake.gradients.stop(*intake.world[0]); });
    while (!intake.gradients.is_finishing()) {
    }
    closed.set_value();
    marking.get();
    CHECK_FAILS(stopping.get(), DSC_ERR_TIMEOUT, "still marking");
  }
  intake.gradients.stop(*intake.world[0]);
  assert_true(intake.gradients.is_finishing());
  CHECK_FAILS(intake.gradients.expect_finished(3), DSC_ERR_STATE, "dsc_bucket_reducer_finish() is running");
  assert_int_equal(complaints.exchange(0), 0);
}

// The first iteration of a static graph counts the marks. In later iterations a gradient is complete with its
// last mark. A parameter without a mark in the first iteration is ready with the first gradient.
void counts_the_marks_of_a_static_graph(void**) {
  Intake intake(3, true);
  float shared[4] = {};
  intake.begin();
  assert_false(intake.mark(0, shared));
  assert_false(intake.mark(1));
  assert_false(intake.mark(0, shared));
  const auto deferred = intake.gradients.take_deferred();
  assert_int_equal(deferred.marked.size(), 2);
  assert_true(deferred.marked[0].gradient.data == shared);
  assert_true(deferred.unmarked == std::vector<size_t>{2});
  assert_true(intake.order() == (std::vector<size_t>{0, 1, 2}));
  intake.finish();

  intake.begin();
  assert_false(intake.mark(0, shared));
  CHECK_FAILS(intake.mark(0, shared + 1), DSC_ERR_INVALID_ARG, "another address than at the previous mark");
  assert_true(intake.mark(0, shared));
  assert_true(intake.gradients.take_frozen_unused() == std::vector<size_t>{2});
  assert_true(intake.gradients.take_frozen_unused().empty());
  CHECK_FAILS(intake.mark(2), DSC_ERR_STATE, "the graph has changed", "expected 0 marks");
  CHECK_FAILS(intake.mark(0, shared), DSC_ERR_STATE, "was marked once more, expected 2 marks");
  assert_true(intake.mark(1));
  intake.finish();
  assert_int_equal(complaints.exchange(0), 0);
}

// What a local iteration has accumulated is part of the gradient of the next iteration.
void carries_sums_of_local_iterations(void**) {
  Intake intake(2);
  intake.begin(true);
  assert_true(intake.gradients.is_local());
  assert_true(intake.mark(0));
  intake.gradients.note_collected(0);
  intake.finish();
  intake.begin();
  assert_true(intake.gradients.has_sum(0));
  assert_true(intake.gradients.take_missing() == (std::vector<size_t>{0, 1}));
  assert_true(intake.order() == (std::vector<size_t>{0, 1}));
  {
    const MutexLock lock(intake.gradients.mutex);
    assert_true(intake.gradients.marks().usage().used() == (std::vector<int32_t>{1, 0}));
  }
  intake.finish();
  intake.begin();
  assert_false(intake.gradients.has_sum(0));
  intake.finish();
}

// A gradient inside the bucket memory is refused unless it is the parameter's own view. Overlapping gradients
// are refused too.
void refuses_memory_of_others(void**) {
  Intake intake(2);
  float buckets[16] = {}, own[8] = {};
  {
    const MutexLock lock(intake.gradients.mutex);
    intake.gradients.set_buckets(std::as_bytes(std::span(buckets)));
  }
  intake.begin();
  CHECK_FAILS(intake.mark(0, buckets + 15), DSC_ERR_INVALID_ARG, "is in the library's own buckets");
  assert_true(intake.mark(0, own));
  CHECK_FAILS(intake.mark(1, own + 3), DSC_ERR_INVALID_ARG, "gradient overlaps the gradient of parameter 0");
  assert_true(intake.mark(1, own + 4));
  intake.finish();
  assert_int_equal(complaints.exchange(0), 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(takes_a_mark_back),
      cmocka_unit_test(counts_a_sum_only_when_it_was_made),
      cmocka_unit_test(stops_when_all_marks_have_ended),
      cmocka_unit_test(counts_the_marks_of_a_static_graph),
      cmocka_unit_test(carries_sums_of_local_iterations),
      cmocka_unit_test(refuses_memory_of_others),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
