// Measures how fast schedules are made, iterated and simulated. Prints one line per schedule.
#include <dsc/dsc.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace {

double now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(time).count();
}

dsc_result_t measure(const char* name, int32_t stages, int32_t micro_batches) {
  dsc_pipe_schedule_options_t options;
  dsc_result_t result = dsc_pipe_schedule_options_init(&options, sizeof options);
  options.name = name;
  options.stages = stages;
  options.stage = stages / 2;
  options.micro_batches = micro_batches;
  dsc_pipe_schedule_t* schedule = nullptr;
  const double start = now();
  if (result == DSC_OK) result = dsc_pipe_schedule_create(&options, &schedule);
  const double made = now();
  int64_t instructions = 0;
  dsc_pipe_instruction_t instruction{};
  instruction.struct_size = sizeof instruction;
  for (; result == DSC_OK; ++instructions) result = dsc_pipe_schedule_next(schedule, &instruction);
  const double walked = now();
  if (result != DSC_DONE) return result;
  --instructions;  // the last call returned no instruction
  dsc_pipe_report_t* report = nullptr;
  const dsc_result_t simulated = dsc_pipe_simulate(schedule, nullptr, &report);
  const double priced = now();
  std::printf("%-20s made in %.3f s, %lld instructions, %.1f million a second; ", name, made - start,
              static_cast<long long>(instructions),
              static_cast<double>(instructions) / (walked - made) / 1e6);
  double makespan = 0;
  if (simulated == DSC_OK && dsc_pipe_report_makespan(report, &makespan) == DSC_OK)
    std::printf("simulated in %.3f s, makespan %.0f\n", priced - walked, makespan);
  else
    std::printf("not simulated: %s\n", dsc_last_error_message());
  dsc_pipe_report_destroy(report);
  return dsc_pipe_schedule_destroy(schedule);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: bench_schedule STAGES MICRO_BATCHES\n");
    return 2;
  }
  int failed = 0;
  for (const char* name :
       {"deepspeed_train", "deepspeed_inference", "data_parallel", "gpipe", "1f1b", "interleaved_1f1b",
        "looped_bfs", "zb_h1", "zb_h2", "zb_v", "v_half", "v_min", "dualpipe_v"}) {
    if (measure(name, std::atoi(argv[1]), std::atoi(argv[2])) == DSC_OK) continue;
    std::printf("%-20s %s\n", name, dsc_last_error_message());
    failed = 1;
  }
  return failed;
}
