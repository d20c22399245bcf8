// Measures the overhead of dsc_pipe_run with empty callbacks and messages of one size. It takes turns with a
// loop that does the same sends and receives directly, and with a run that has variable shapes. Prints one
// line of JSON with nanoseconds per instruction.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "dsc/dsc.h"

namespace {

void check(dsc_result_t result) {
  if (result < 0) throw std::runtime_error(dsc_last_error_message());
}

int32_t do_nothing(void*, const dsc_pipe_call_t*) { return 0; }

double now_ns() { return static_cast<double>(std::chrono::steady_clock::now().time_since_epoch().count()); }

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

struct Stage {
  Stage(const char* name, int32_t micro_batches, size_t bytes) {
    check(dsc_init_distributed(nullptr, &world));
    check(dsc_comm_rank(world, &rank));
    check(dsc_comm_size(world, &size));
    check(dsc_comm_split(world, 0, rank, nullptr, &comm));
    check(dsc_comm_split(world, 0, rank, nullptr, &activations));
    check(dsc_comm_split(world, 0, rank, nullptr, &gradients));
    dsc_pipe_schedule_options_t wanted;
    check(dsc_pipe_schedule_options_init(&wanted, sizeof wanted));
    wanted.name = name;
    wanted.stages = size;
    wanted.stage = rank;
    wanted.micro_batches = micro_batches;
    check(dsc_pipe_schedule_create(&wanted, &schedule));
    const size_t slot_bytes = (bytes + 127) / 128 * 128;
    // One slot per micro-batch is more than any schedule uses, and is the same number on every rank.
    check(dsc_mem_alloc(comm, slot_bytes * 4 * static_cast<size_t>(micro_batches), DSC_MEMORY_KIND_HOST,
                        &memory));
    dsc_pipe_instruction_t next{};
    next.struct_size = sizeof next;
    while (dsc_pipe_schedule_next(schedule, &next) == DSC_OK) list.push_back(next);
    callbacks = {sizeof callbacks, nullptr,    do_nothing, do_nothing, do_nothing,
                 do_nothing,       do_nothing, do_nothing, do_nothing, do_nothing};
    check(dsc_pipe_run_options_init(&options, sizeof options));
    elements = static_cast<int64_t>(bytes / sizeof(float));
    tensor = {sizeof tensor, nullptr, &elements, nullptr, bytes / sizeof(float), DSC_DTYPE_F32, 1, -1, 0};
    options.inputs = rank == 0 ? nullptr : &tensor;
    options.n_inputs = rank == 0 ? 0 : 1;
    options.outputs = rank == size - 1 ? nullptr : &tensor;
    options.n_outputs = rank == size - 1 ? 0 : 1;
  }

  void run(bool variable) {
    options.variable_shapes = variable ? 1 : 0;
    double mean_loss = 0;
    check(dsc_pipe_run(schedule, comm, &callbacks, &options, &mean_loss));
  }

  // Executes the same instructions in a plain loop.
  void loop() {
    const size_t slot_bytes = (tensor.count * sizeof(float) + 127) / 128 * 128;
    for (const dsc_pipe_instruction_t& one : list) {
      const auto slot = static_cast<size_t>(std::max(one.buffer, 0)) * 4;
      const auto place = [&](size_t end) { return static_cast<char*>(memory) + (slot + end) * slot_bytes; };
      switch (one.op) {
        case DSC_PIPE_OP_SEND_ACTIVATION:
          check(dsc_send(activations, place(0), tensor.count, DSC_DTYPE_F32, one.peer, nullptr, nullptr));
          break;
        case DSC_PIPE_OP_RECV_ACTIVATION:
          check(dsc_recv(activations, place(1), tensor.count, DSC_DTYPE_F32, one.peer, nullptr, nullptr));
          break;
        case DSC_PIPE_OP_SEND_GRAD:
          check(dsc_send(gradients, place(2), tensor.count, DSC_DTYPE_F32, one.peer, nullptr, nullptr));
          break;
        case DSC_PIPE_OP_RECV_GRAD:
          check(dsc_recv(gradients, place(3), tensor.count, DSC_DTYPE_F32, one.peer, nullptr, nullptr));
          break;
        default:
          break;
      }
    }
  }

  // Returns nanoseconds per instruction on the slowest rank.
  template <typename Body>
  double time(Body&& body) {
    check(dsc_barrier(world, nullptr, nullptr));
    const double start = now_ns();
    body();
    double ns = (now_ns() - start) / static_cast<double>(list.size());
    check(dsc_all_reduce(world, &ns, &ns, 1, DSC_DTYPE_F64, DSC_OP_MAX, nullptr, nullptr));
    return ns;
  }

  dsc_comm_t* world = nullptr;
  dsc_comm_t* comm = nullptr;
  dsc_comm_t* activations = nullptr;
  dsc_comm_t* gradients = nullptr;
  dsc_pipe_schedule_t* schedule = nullptr;
  void* memory = nullptr;
  int32_t rank = 0;
  int32_t size = 1;
  std::vector<dsc_pipe_instruction_t> list;
  dsc_pipe_callbacks_t callbacks{};
  dsc_pipe_run_options_t options{};
  dsc_tensor_t tensor{};
  int64_t elements = 0;
};

void measure(const char* name, int32_t micro_batches, size_t bytes, int repetitions) {
  Stage stage(name, micro_batches, bytes);
  std::vector<double> run, variable, loop;
  for (int i = 0; i < repetitions; ++i) {
    run.push_back(stage.time([&] { stage.run(false); }));
    variable.push_back(stage.time([&] { stage.run(true); }));
    loop.push_back(stage.time([&] { stage.loop(); }));
  }
  if (stage.rank == 0)
    std::printf(
        "{\"schedule\": \"%s\", \"ranks\": %d, \"micro_batches\": %d, \"bytes\": %zu, \"instructions\": %zu, "
        "\"run_ns\": %.1f, \"variable_ns\": %.1f, \"loop_ns\": %.1f}\n",
        name, stage.size, micro_batches, bytes, stage.list.size(), median(run), median(variable),
        median(loop));
  check(dsc_finalize());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: bench_pipe SCHEDULE MICRO_BATCHES BYTES REPETITIONS, under dscrun\n");
    return 2;
  }
  try {
    measure(argv[1], std::atoi(argv[2]), static_cast<size_t>(std::atoll(argv[3])), std::atoi(argv[4]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_pipe: %s\n", error.what());
    return 1;
  }
  return 0;
}
