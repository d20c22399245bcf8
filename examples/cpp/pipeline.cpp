// Trains a chain of numbers in a pipeline, in C++. Stage s multiplies by its weight; the last stage compares
// the product with a target.
//
//   dscrun -n 4 -- ./pipeline
//
// One step is one run of the schedule: the functions below compute, and the library sends activations and
// gradients between the stages. The last run shows an exception that ends the run on all ranks.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <dsc/dsc.hpp>
#include <exception>
#include <stdexcept>

namespace {

constexpr std::int32_t kMicroBatches = 4;
constexpr int kSteps = 100;
constexpr double kTarget = 24.0, kRate = 1e-4, kLargestLoss = 1e-6;

class stage {
 public:
  // Functions that only this stage needs stay empty: there are no shared weights and no other replicas.
  dsc::pipe_callbacks callbacks() {
    dsc::pipe_callbacks made;
    made.load_micro_batch = [](const dsc::pipe_call&) {};  // the inputs are computed in input()
    made.forward = [this](const dsc::pipe_call& call) { forward(call); };
    made.backward = [this](const dsc::pipe_call& call) { backward(call); };
    made.optimizer_step = [this](const dsc::pipe_call&) {
      weight_ -= kRate * weight_grad_;
      weight_grad_ = 0.0;
    };
    return made;
  }

  double weight() const { return weight_; }

 private:
  // The inputs of micro-batch m: m + 1 on the first stage, else the number from the previous stage.
  static double input(const dsc::pipe_call& call) {
    return call.n_inputs() > 0 ? call.input<double>()[0] : call.instruction.micro_batch + 1.0;
  }

  // The difference to the target, in proportion to the micro-batch's first input.
  double difference(const dsc::pipe_call& call) const {
    return weight_ * input(call) - kTarget * (call.instruction.micro_batch + 1.0);
  }

  void forward(const dsc::pipe_call& call) const {
    if (call.n_outputs() > 0) call.output<double>()[0] = weight_ * input(call);
    if (call.has_loss()) call.set_loss(difference(call) * difference(call) / 2.0);
  }

  void backward(const dsc::pipe_call& call) {
    const double grad =
        call.n_outputs() > 0 ? call.output_grad<double>()[0] : difference(call) / kMicroBatches;
    weight_grad_ += input(call) * grad;
    if (call.n_inputs() > 0) call.input_grad<double>()[0] = weight_ * grad;
  }

  double weight_ = 2.0;
  double weight_grad_ = 0.0;
};

// What a stage exchanges: one number with each of its neighbors.
dsc::pipe_shapes shapes_of(const dsc::comm& comm) {
  dsc::pipe_shapes shapes;
  if (comm.rank() > 0) shapes.inputs.push_back(dsc::tensor::described<double>(1));
  if (comm.rank() < comm.size() - 1) shapes.outputs.push_back(dsc::tensor::described<double>(1));
  return shapes;
}

// Trains and returns the last loss, which is the same on all ranks.
double train(const dsc::comm& comm, stage& own, dsc::pipe_schedule& schedule) {
  const dsc::pipe_callbacks callbacks = own.callbacks();
  double loss = 0.0;
  for (int step = 0; step < kSteps; ++step) loss = dsc::pipe_run(comm, schedule, callbacks, shapes_of(comm));
  return loss;
}

// Runs with a function that throws on the last stage, which gets its own exception again. The others learn
// its text.
void fail(const dsc::comm& comm, stage& own, dsc::pipe_schedule& schedule) {
  dsc::pipe_callbacks callbacks = own.callbacks();
  if (comm.rank() == comm.size() - 1)
    callbacks.forward = [](const dsc::pipe_call&) { throw std::domain_error("the loss is not a number"); };
  try {
    dsc::pipe_run(comm, schedule, callbacks, shapes_of(comm));
  } catch (const std::domain_error& own_exception) {
    std::printf("stage %d: own exception: %s\n", comm.rank(), own_exception.what());
  } catch (const dsc::error& failure) {
    std::printf("stage %d: %s: %s\n", comm.rank(), dsc::name(failure.code()), failure.what());
  }
}

bool run() {
  dsc::comm world = dsc::init();
  dsc::comm pipeline = world.split(0, world.rank());  // a communicator of its own, because fail() ends it
  dsc::pipe_schedule schedule("1f1b", pipeline.size(), pipeline.rank(), kMicroBatches);
  stage own;
  const double loss = train(pipeline, own, schedule);
  const bool good = loss < kLargestLoss;
  std::printf("stage %d: weight %.6f, loss %s\n", pipeline.rank(), own.weight(), good ? "reached" : "MISSED");
  fail(pipeline, own, schedule);
  world.finalize();
  return good;
}

}  // namespace

int main() {
  try {
    return run() ? EXIT_SUCCESS : EXIT_FAILURE;
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "pipeline: %s\n", failure.what());
  }
  return EXIT_FAILURE;
}
