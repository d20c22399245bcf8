// Schedules through the public interface, compared with lists recorded from DeepSpeed, Megatron-LM and
// PyTorch.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "dsc/dsc.h"
#include "json.hpp"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

namespace {

using support::Json;

std::string vectors_folder;

class Schedule {
 public:
  Schedule(const char* name, int32_t stages, int32_t stage, int32_t micro_batches) {
    dsc_pipe_schedule_options_t options;
    assert_int_equal(dsc_pipe_schedule_options_init(&options, sizeof options), DSC_OK);
    options.name = name;
    options.stages = stages;
    options.stage = stage;
    options.micro_batches = micro_batches;
    if (dsc_pipe_schedule_create(&options, &handle_) != DSC_OK) fail_msg("%s", dsc_last_error_message());
  }
  ~Schedule() { dsc_pipe_schedule_destroy(handle_); }
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  dsc_pipe_schedule_t* get() const { return handle_; }

  bool next(dsc_pipe_instruction_t& instruction) const {
    instruction.struct_size = sizeof instruction;
    const dsc_result_t result = dsc_pipe_schedule_next(handle_, &instruction);
    assert_true(result == DSC_OK || result == DSC_DONE);
    return result == DSC_OK;
  }

  int64_t steps() const {
    int64_t steps = 0;
    assert_int_equal(dsc_pipe_schedule_steps(handle_, &steps), DSC_OK);
    return steps;
  }

  int32_t buffers() const {
    int32_t buffers = 0;
    assert_int_equal(dsc_pipe_schedule_buffers(handle_, &buffers), DSC_OK);
    return buffers;
  }

 private:
  dsc_pipe_schedule_t* handle_ = nullptr;
};

// Calls `body` for every case of a file and returns the number of cases.
template <typename Body>
size_t for_each_case(const char* file_name, Body body) {
  std::ifstream file(vectors_folder + "/" + file_name);
  size_t cases = 0;
  for (std::string line; std::getline(file, line);) {
    const Json json = Json::parse(line);
    if (json.contains("_meta")) continue;
    body(json);
    ++cases;
  }
  return cases;
}

void same(const Json& got, const Json& expected, const Json& of) {
  if (got == expected) return;
  fail_msg("%s: got %s", of.dump().c_str(), got.dump().c_str());
}

// ---- DeepSpeed ----

const char* deepspeed_name(int32_t op) {
  static const std::map<int32_t, const char*> names{{DSC_PIPE_OP_LOAD_MICRO_BATCH, "LoadMicroBatch"},
                                                    {DSC_PIPE_OP_FORWARD, "ForwardPass"},
                                                    {DSC_PIPE_OP_BACKWARD, "BackwardPass"},
                                                    {DSC_PIPE_OP_SEND_ACTIVATION, "SendActivation"},
                                                    {DSC_PIPE_OP_RECV_ACTIVATION, "RecvActivation"},
                                                    {DSC_PIPE_OP_SEND_GRAD, "SendGrad"},
                                                    {DSC_PIPE_OP_RECV_GRAD, "RecvGrad"},
                                                    {DSC_PIPE_OP_REDUCE_TIED_GRADS, "ReduceTiedGrads"},
                                                    {DSC_PIPE_OP_REDUCE_GRADS, "ReduceGrads"},
                                                    {DSC_PIPE_OP_OPTIMIZER_STEP, "OptimizerStep"}};
  return names.at(op);
}

// Returns the schedule as DeepSpeed prints it: a list of instructions per step.
Json deepspeed_steps(const Schedule& schedule) {
  std::vector<Json> steps(static_cast<size_t>(schedule.steps()), Json::array());
  dsc_pipe_instruction_t it{};
  while (schedule.next(it)) {
    Json arguments = Json::object();
    if (it.buffer >= 0) arguments["buffer_id"] = it.buffer;
    steps.at(static_cast<size_t>(it.step)).push_back({deepspeed_name(it.op), arguments});
  }
  return steps;
}

// The micro-batch of every instruction must be the one in its buffer, which follows from the number of the
// step.
void micro_batches_fit(const Schedule& schedule, const Json& of) {
  std::map<int32_t, int32_t> held;  // the micro-batch in each buffer
  dsc_pipe_instruction_t it{};
  while (schedule.next(it)) {
    if (it.buffer < 0) continue;
    if (it.op == DSC_PIPE_OP_FORWARD || it.op == DSC_PIPE_OP_BACKWARD) {
      int32_t micro_batch = -2;
      int32_t is_forward = -2;
      assert_int_equal(dsc_pipe_schedule_step(schedule.get(), it.step, &micro_batch, &is_forward), DSC_OK);
      if (micro_batch != it.micro_batch) fail_msg("%s: step %d", of.dump().c_str(), (int)it.step);
      if (of["schedule"] != "DataParallelSchedule")
        assert_int_equal(is_forward, it.op == DSC_PIPE_OP_FORWARD);
    }
    if (it.op == DSC_PIPE_OP_LOAD_MICRO_BATCH || it.op == DSC_PIPE_OP_RECV_ACTIVATION)
      held[it.buffer] = it.micro_batch;
    else if (held.at(it.buffer) != it.micro_batch)
      fail_msg("%s: op %d of micro-batch %d finds %d", of.dump().c_str(), it.op, it.micro_batch,
               held.at(it.buffer));
  }
}

void deepspeed_instruction_for_instruction(void**) {
  static const std::map<std::string, const char*> names{{"TrainSchedule", "deepspeed_train"},
                                                        {"InferenceSchedule", "deepspeed_inference"},
                                                        {"DataParallelSchedule", "data_parallel"}};
  const size_t cases = for_each_case("ds_schedule.jsonl", [](const Json& json) {
    const Schedule schedule(names.at(json["schedule"]), json["stages"], json["stage_id"],
                            json["micro_batches"]);
    assert_int_equal(schedule.steps(), json["num_steps"].get<int64_t>());
    assert_int_equal(schedule.buffers(), json["num_pipe_buffers"].get<int32_t>());
    same(deepspeed_steps(schedule), json["steps"], json);
    assert_int_equal(dsc_pipe_schedule_reset(schedule.get()), DSC_OK);
    micro_batches_fit(schedule, json);
  });
  assert_int_equal(cases, 180);
}

// ---- compute orders ----

Json compute_order(const Schedule& schedule) {
  Json order = Json::array();
  dsc_pipe_instruction_t it{};
  while (schedule.next(it)) {
    if (it.op == DSC_PIPE_OP_FORWARD) order.push_back("F" + std::to_string(it.micro_batch));
    if (it.op == DSC_PIPE_OP_BACKWARD) order.push_back("B" + std::to_string(it.micro_batch));
  }
  return order;
}

// Returns the compute order from the step view.
Json steps_order(const Schedule& schedule) {
  Json order = Json::array();
  for (int64_t step = 0; step < schedule.steps(); ++step) {
    int32_t micro_batch = -2;
    int32_t is_forward = -2;
    assert_int_equal(dsc_pipe_schedule_step(schedule.get(), step, &micro_batch, &is_forward), DSC_OK);
    if (micro_batch >= 0) order.push_back((is_forward ? "F" : "B") + std::to_string(micro_batch));
  }
  return order;
}

void check_order(const char* name, const Json& json) {
  const Schedule schedule(name, json["stages"], json["stage"], json["micro_batches"]);
  same(compute_order(schedule), json["compute"], json);
  same(steps_order(schedule), json["compute"], json);
}

void one_f_one_b_like_megatron(void**) {
  const size_t cases = for_each_case("mg_sched_1f1b.jsonl", [](const Json& json) {
    check_order("1f1b", json);
    check_order("deepspeed_train", json);  // the steps differ from DeepSpeed's, the order is the same
  });
  assert_int_equal(cases, 279);
}

void both_like_pytorch(void**) {
  const size_t cases = for_each_case("pt_sched_single.jsonl", [](const Json& json) {
    check_order(json["schedule"] == "GPipe" ? "gpipe" : "1f1b", json);
  });
  assert_int_equal(cases, 84);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    print_error("usage: %s FOLDER_OF_THE_VECTORS\n", argv[0]);
    return 1;
  }
  vectors_folder = argv[1];
  const CMUnitTest tests[] = {
      cmocka_unit_test(deepspeed_instruction_for_instruction),
      cmocka_unit_test(one_f_one_b_like_megatron),
      cmocka_unit_test(both_like_pytorch),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
