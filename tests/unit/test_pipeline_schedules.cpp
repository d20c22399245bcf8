// Properties of every named schedule: it completes under blocking sends, does not mix up its buffers, and
// takes the time of its formula. Also sizes from one to very large, and errors.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <string>

#include "base/error.hpp"
#include "pipeline/catalog.hpp"
#include "pipeline/lower.hpp"
#include "pipeline_support.hpp"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

namespace {

using dsc::make_schedule;
using dsc::PipeOp;
using dsc::Placement;
using dsc::PlacementShape;
using dsc::ScheduleSpec;

constexpr int32_t kMostStages = 8;
constexpr int32_t kMostMicroBatches = 16;

struct Pipeline {
  std::vector<List> lists;
  std::vector<int32_t> buffers;
};

Pipeline pipeline(const char* name, int32_t stages, int32_t micro_batches) {
  Pipeline it;
  for (int32_t stage = 0; stage < stages; ++stage) {
    const auto schedule = make_schedule({name, stages, stage, micro_batches, 1});
    it.lists.push_back(rest_of(*schedule));
    it.buffers.push_back(schedule->buffers());
  }
  return it;
}

using Body = std::function<void(int32_t stages, int32_t micro_batches)>;

void for_each_size(const Body& body) {
  for (int32_t stages = 1; stages <= kMostStages; ++stages)
    for (int32_t micro_batches = 1; micro_batches <= kMostMicroBatches; ++micro_batches)
      body(stages, micro_batches);
}

void check_steps(const List& list, int64_t steps, const char* name) {
  int64_t before = 0;
  for (const auto& it : list) {
    if (it.step < before || it.step >= steps) fail_msg("%s: %s", name, to_text(it).c_str());
    before = it.step;
  }
}

size_t count(const List& list, PipeOp op) {
  return static_cast<size_t>(
      std::count_if(list.begin(), list.end(), [&](const auto& it) { return it.op == op; }));
}

void completes_under_blocking_sends(void**) {
  for (const char* name : {"deepspeed_train", "deepspeed_inference", "gpipe", "1f1b"})
    for_each_size([&](int32_t stages, int32_t micro_batches) {
      const Pipeline it = pipeline(name, stages, micro_batches);
      const Placement placement(stages, 1, PlacementShape::kLoop);
      const Outcome outcome = run_rendezvous(it.lists, placement, micro_batches);
      if (!outcome.problem.empty())
        fail_msg("%s, %d stages, %d micro-batches: %s", name, stages, micro_batches, outcome.problem.c_str());
      const bool is_training = std::string(name) != "deepspeed_inference";
      for (const List& list : it.lists) {
        assert_int_equal(count(list, PipeOp::kForward), micro_batches);
        assert_int_equal(count(list, PipeOp::kBackward), is_training ? micro_batches : 0);
        assert_int_equal(count(list, PipeOp::kOptimizerStep), is_training ? 1 : 0);
        assert_int_equal(count(list, PipeOp::kReduceGrads), is_training ? 1 : 0);
        assert_int_equal(count(list, PipeOp::kReduceTiedGrads), is_training ? 1 : 0);
      }
    });
}

// The stages do not communicate. Each stage is a separate pipeline.
void data_parallel_stages_are_alone(void**) {
  for_each_size([](int32_t stages, int32_t micro_batches) {
    const Placement alone(1, 1, PlacementShape::kLoop);
    for (const List& list : pipeline("data_parallel", stages, micro_batches).lists) {
      assert_string_equal(run_rendezvous({list}, alone, micro_batches).problem.c_str(), "");
      assert_string_equal(follow_buffers(list, 0, alone, true).problem.c_str(), "");
    }
  });
}

// The formulas of the literature, with equal stages and messages that take no time.
void takes_the_time_of_the_formula(void**) {
  for (const Costs costs : {Costs{1, 1, 1}, Costs{2, 1, 1}, Costs{1, 2, 2}})
    for (const char* name : {"gpipe", "1f1b"})
      for_each_size([&](int32_t stages, int32_t micro_batches) {
        const Pipeline it = pipeline(name, stages, micro_batches);
        const Outcome outcome =
            run_rendezvous(it.lists, Placement(stages, 1, PlacementShape::kLoop), micro_batches, costs);
        const int64_t expected = (int64_t{micro_batches} + stages - 1) *
                                 (costs.forward + costs.backward_input + costs.backward_weight);
        if (outcome.makespan != expected)
          fail_msg("%s, %d stages, %d micro-batches, costs %d %d: %d units of time, expected %d", name,
                   stages, micro_batches, (int)costs.forward, (int)costs.backward_input,
                   (int)outcome.makespan, (int)expected);
      });
}

void buffers_are_not_overwritten(void**) {
  for (const char* name : {"deepspeed_train", "deepspeed_inference", "gpipe", "1f1b"})
    for_each_size([&](int32_t stages, int32_t micro_batches) {
      const Pipeline it = pipeline(name, stages, micro_batches);
      const Placement placement(stages, 1, PlacementShape::kLoop);
      const bool is_training = std::string(name) != "deepspeed_inference";
      const bool is_lowered = std::string(name) == "gpipe" || std::string(name) == "1f1b";
      for (int32_t stage = 0; stage < stages; ++stage) {
        const auto s = static_cast<size_t>(stage);
        const BufferUse use = follow_buffers(it.lists[s], stage, placement, is_training);
        if (!use.problem.empty())
          fail_msg("%s, stage %d of %d, %d micro-batches: %s", name, stage, stages, micro_batches,
                   use.problem.c_str());
        assert_true(is_lowered ? use.peak == it.buffers[s] : use.peak <= it.buffers[s]);
        for (const auto& instruction : it.lists[s]) assert_true(instruction.buffer < it.buffers[s]);
      }
    });
}

// The number of buffers of each stage is known for gpipe and 1f1b.
void as_many_buffers_as_the_order_needs(void**) {
  for_each_size([](int32_t stages, int32_t micro_batches) {
    const Pipeline gpipe = pipeline("gpipe", stages, micro_batches);
    const Pipeline one_f_one_b = pipeline("1f1b", stages, micro_batches);
    for (int32_t stage = 0; stage < stages; ++stage) {
      assert_int_equal(gpipe.buffers[static_cast<size_t>(stage)], micro_batches);
      assert_int_equal(one_f_one_b.buffers[static_cast<size_t>(stage)],
                       std::min(stages - stage, micro_batches));
    }
  });
}

void steps_never_fall_and_reset_starts_again(void**) {
  for (const char* name : {"deepspeed_train", "deepspeed_inference", "data_parallel", "gpipe", "1f1b"})
    for_each_size([&](int32_t stages, int32_t micro_batches) {
      const auto schedule = make_schedule({name, stages, stages / 2, micro_batches, 1});
      const List list = rest_of(*schedule);
      check_steps(list, schedule->steps(), name);
      schedule->reset();
      assert_true(rest_of(*schedule) == list);
      schedule->reset();
      dsc::Instruction first;
      assert_true(schedule->next(first) && first == list.front());
      schedule->reset();
      assert_true(rest_of(*schedule) == list);
    });
}

// A send is in the step after its operation. The instructions that end a batch are in the last step.
void a_step_of_a_lowered_schedule(void**) {
  const auto schedule = make_schedule({"gpipe", 2, 0, 2, 1});
  const List expected{{0, PipeOp::kLoadMicroBatch, 0, 0, 0, -1},
                      {0, PipeOp::kForward, 0, 0, 0, -1},
                      {1, PipeOp::kSendActivation, 0, 0, 0, 1},
                      {1, PipeOp::kLoadMicroBatch, 1, 0, 1, -1},
                      {1, PipeOp::kForward, 1, 0, 1, -1},
                      {2, PipeOp::kSendActivation, 1, 0, 1, 1},
                      {2, PipeOp::kRecvGrad, 0, 0, 0, 1},
                      {2, PipeOp::kBackward, 0, 0, 0, -1},
                      {3, PipeOp::kRecvGrad, 1, 0, 1, 1},
                      {3, PipeOp::kBackward, 1, 0, 1, -1},
                      {3, PipeOp::kReduceTiedGrads},
                      {3, PipeOp::kReduceGrads},
                      {3, PipeOp::kOptimizerStep}};
  const List list = rest_of(*schedule);
  for (size_t i = 0; i < std::min(list.size(), expected.size()); ++i)
    if (list[i] != expected[i])
      fail_msg("%s, expected %s", to_text(list[i]).c_str(), to_text(expected[i]).c_str());
  assert_int_equal(list.size(), expected.size());
}

// ---- sizes ----

void one_stage_sends_nothing(void**) {
  for (const char* name : {"deepspeed_train", "deepspeed_inference", "data_parallel", "gpipe", "1f1b"}) {
    const auto schedule = make_schedule({name, 1, 0, 3, 1});
    const List list = rest_of(*schedule);
    assert_int_equal(count(list, PipeOp::kLoadMicroBatch), 3);
    assert_true(std::all_of(list.begin(), list.end(), [](const auto& it) { return it.peer == -1; }));
  }
}

// The schedule is too long to visit all steps. The test checks its beginning, and the operations of its last
// steps.
void a_huge_closed_form(void**) {
  constexpr int32_t kStages = 1024;
  constexpr int32_t kMicroBatches = 1 << 30;
  const auto train = make_schedule({"deepspeed_train", kStages, 1000, kMicroBatches, 1});
  assert_int_equal(train->steps(), 2 * (int64_t{kMicroBatches} + kStages - 1));
  assert_int_equal(train->buffers(), kStages - 1000);
  dsc::Instruction it;
  assert_true(train->next(it) && it == (dsc::Instruction{1000, PipeOp::kRecvActivation, 0, 0, 0, 999}));
  assert_true(train->next(it) && it == (dsc::Instruction{1000, PipeOp::kForward, 0, 0, 0, -1}));
  assert_true(train->next(it) && it == (dsc::Instruction{1001, PipeOp::kSendActivation, 0, 0, 0, 1001}));
  const int64_t last = 2 * int64_t{kStages} - 1 - 1000 + 2 * (int64_t{kMicroBatches} - 1);
  assert_int_equal(train->step(last).micro_batch, kMicroBatches - 1);
  assert_false(train->step(last).is_forward);
  assert_int_equal(train->step(last + 2).micro_batch, -1);
  assert_int_equal(train->step(train->steps() - 1).micro_batch, -1);
  const auto inference = make_schedule({"deepspeed_inference", kStages, 1023, INT32_MAX, 1});
  assert_int_equal(inference->steps(), int64_t{INT32_MAX} + kStages - 1);
  assert_int_equal(inference->step(inference->steps() - 1).micro_batch, INT32_MAX - 1);
  assert_int_equal(make_schedule({"data_parallel", kStages, 0, INT32_MAX, 1})->steps(), INT32_MAX);
}

// Almost all steps of two billion stages are idle. Visiting the steps of one stage must take no noticeable
// time.
void idle_steps_are_skipped(void**) {
  constexpr int32_t kStage = 1 << 30;
  const auto train = make_schedule({"deepspeed_train", INT32_MAX, kStage, 2, 1});
  const List list = rest_of(*train);
  const int64_t first_backward = 2 * int64_t{INT32_MAX} - 1 - kStage;
  assert_int_equal(list.size(), 2 * 6 + 3);
  assert_true(list.front() == (dsc::Instruction{kStage, PipeOp::kRecvActivation, 0, 0, 0, kStage - 1}));
  assert_true(list[6] == (dsc::Instruction{first_backward, PipeOp::kRecvGrad, 0, 0, 0, kStage + 1}));
  assert_true(list[11] == (dsc::Instruction{first_backward + 3, PipeOp::kSendGrad, 1, 0, 1, kStage - 1}));
  assert_true(list.back() == (dsc::Instruction{.step = train->steps() - 1, .op = PipeOp::kOptimizerStep}));
  const auto inference = make_schedule({"deepspeed_inference", INT32_MAX, kStage, 2, 1});
  assert_int_equal(rest_of(*inference).size(), 6);
}

// ---- errors ----

void check_fails(const ScheduleSpec& spec, dsc_result_t code, std::initializer_list<const char*> words) {
  try {
    make_schedule(spec);
  } catch (const dsc::Error& error) {
    assert_int_equal(error.code(), code);
    for (const char* word : words)
      if (std::string(error.what()).find(word) == std::string::npos)
        fail_msg("\"%s\" does not say \"%s\"", error.what(), word);
    return;
  }
  fail_msg("schedule \"%s\" was made, expected error %d", spec.name.c_str(), code);
}

void wrong_names(void**) {
  check_fails({"1f1", 4, 0, 8, 1}, DSC_ERR_INVALID_ARG, {"\"1f1\"", "did you mean \"1f1b\"?"});
  check_fails({"GPipe", 4, 0, 8, 1}, DSC_ERR_INVALID_ARG, {"did you mean \"gpipe\"?"});
  check_fails(
      {"deepspeed", 4, 0, 8, 1}, DSC_ERR_INVALID_ARG,
      {"Known schedules: deepspeed_train, ", "deepspeed_inference", "data_parallel", "gpipe", "1f1b"});
  check_fails({"", 4, 0, 8, 1}, DSC_ERR_INVALID_ARG, {"unknown schedule \"\"", "data_parallel"});
  check_fails({std::string(10000, 'x'), 4, 0, 8, 1}, DSC_ERR_INVALID_ARG, {"xxxxxxxx", "data_parallel"});
  check_fails({"custom", 4, 0, 8, 1}, DSC_ERR_INVALID_ARG,
              {"needs a list of operations for each stage; use"});
  assert_int_equal(make_schedule({"auto", 4, 0, 8, 1})->steps(), 8 * 3);
}

void wrong_numbers(void**) {
  for (const char* name : {"deepspeed_train", "deepspeed_inference", "data_parallel", "gpipe", "1f1b"}) {
    check_fails({name, 0, 0, 8, 1}, DSC_ERR_INVALID_ARG, {"stages is 0", "1 or more"});
    check_fails({name, INT32_MIN, 0, 8, 1}, DSC_ERR_INVALID_ARG, {"stages is -2147483648"});
    check_fails({name, 4, 4, 8, 1}, DSC_ERR_INVALID_ARG, {"stage is 4", "0 to 3"});
    check_fails({name, 4, -1, 8, 1}, DSC_ERR_INVALID_ARG, {"stage is -1", "0 to 3"});
    check_fails({name, 4, 0, 0, 1}, DSC_ERR_INVALID_ARG, {"micro_batches is 0", "1 or more"});
    check_fails({name, 4, 0, 8, 2}, DSC_ERR_INVALID_ARG, {"chunks is 2", "expected 1", name});
    check_fails({name, 4, 0, 8, -1}, DSC_ERR_INVALID_ARG, {"chunks is -1", "expected 1"});
  }
}

void too_large_to_be_lowered(void**) {
  for (const char* name : {"gpipe", "1f1b"}) {
    check_fails({name, 2, 0, (1 << 25) + 1, 1}, DSC_ERR_OVERFLOW, {"2 stages", "33554433", "67108864"});
    check_fails({name, INT32_MAX, 0, INT32_MAX, 1}, DSC_ERR_OVERFLOW, {"stages is 2147483647", "262144"});
  }
  const auto large = make_schedule({"1f1b", 1024, 512, 1 << 14, 1});  // the largest allowed size
  assert_int_equal(large->buffers(), 512);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(completes_under_blocking_sends),
      cmocka_unit_test(data_parallel_stages_are_alone),
      cmocka_unit_test(takes_the_time_of_the_formula),
      cmocka_unit_test(buffers_are_not_overwritten),
      cmocka_unit_test(as_many_buffers_as_the_order_needs),
      cmocka_unit_test(steps_never_fall_and_reset_starts_again),
      cmocka_unit_test(a_step_of_a_lowered_schedule),
      cmocka_unit_test(one_stage_sends_nothing),
      cmocka_unit_test(a_huge_closed_form),
      cmocka_unit_test(idle_steps_are_skipped),
      cmocka_unit_test(wrong_names),
      cmocka_unit_test(wrong_numbers),
      cmocka_unit_test(too_large_to_be_lowered),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
