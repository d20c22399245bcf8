#include "pipeline_run/runner.hpp"

#include "base/error.hpp"
#include "base/guard.hpp"
#include "pipeline_run/accord.hpp"

namespace dsc {
namespace {

constexpr PipeOp kAllOps[] = {
    PipeOp::kLoadMicroBatch, PipeOp::kForward,         PipeOp::kBackward,    PipeOp::kBackwardInput,
    PipeOp::kBackwardWeight, PipeOp::kReduceTiedGrads, PipeOp::kReduceGrads, PipeOp::kOptimizerStep,
};

std::string describe(const ScheduleSpec& spec) {
  return spec.name + " with " + std::to_string(spec.stages) + " stages, " +
         std::to_string(spec.micro_batches) + " micro-batches and " + std::to_string(spec.chunks) + " chunks";
}

void check_stage(const ScheduleSpec& spec, const Comm& comm) {
  if (spec.stages != comm.size() || spec.stage != comm.rank())
    fail(DSC_ERR_INVALID_ARG, "the schedule is of stage %d of %d, expected stage %d of %d: rank s is stage s",
         spec.stage, spec.stages, comm.rank(), comm.size());
}

void check_actions(const PipeNeeds& needs, const PipeActions& actions) {
  for (const PipeOp op : kAllOps)
    if (needs.has(op) && !actions.has(op))
      fail(DSC_ERR_INVALID_ARG, "there is no callback for %s, which the schedule has as %s", pipe_op_name(op),
           describe(*needs.first(op)).c_str());
}

Failure failure_here(const Comm& comm, dsc_result_t code, const std::string& text) {
  Failure cause;
  cause.code = code;
  cause.rank = comm.rank();
  cause.ranks = {comm.rank()};
  cause.group = comm.id();
  cause.operation = "pipe_run";
  cause.text = "rank " + std::to_string(comm.rank()) + ": " + text;
  return cause;
}

double mean_of_all(Comm& comm, double sum, double count) {
  double mine[2] = {sum, count};
  double all[2] = {};
  Call call;
  call.kind = OpKind::kAllReduce;
  call.dtype = DSC_DTYPE_F64;
  call.op = DSC_OP_SUM;
  call.send = mine;
  call.recv = all;
  call.count = 2;
  comm.run(call);
  return all[1] == 0 ? 0 : all[0] / all[1];
}

}  // namespace

PipeRunner::~PipeRunner() { release(); }

void PipeRunner::release() noexcept {
  activations_.reset();
  gradients_.reset();
  if (memory_) capture([&] { release_memory(memory_); }, [](dsc_result_t, const char*) {});
  memory_ = nullptr;
  memory_bytes_ = 0;
  comm_serial_ = 0;
}

StageLayout PipeRunner::lay_out(const Comm& comm, const PipeActions& actions, const PipeShapes& shapes) {
  check_stage(schedule_.spec(), comm);
  if (!needs_) needs_.emplace(schedule_);
  check_actions(*needs_, actions);
  return {shapes, *needs_, schedule_.spec(), schedule_.buffers()};
}

void PipeRunner::prepare(Comm& comm, const PipeActions& actions, const PipeShapes& shapes) {
  StageLayout layout;
  PipeIntent intent;
  capture([&] { layout = lay_out(comm, actions, shapes); },
          [&](dsc_result_t code, const char* text) {
            intent.code = code;
            intent.text = text;
          });
  intent.schedule = describe(schedule_.spec());
  intent.inputs = describe(shapes.inputs);
  intent.outputs = describe(shapes.outputs);
  intent.bytes = layout.bytes();
  intent.fresh = comm_serial_ != comm.serial || layout.bytes() > memory_bytes_;
  const PipeAccord accord = agree(comm, intent);
  if (accord.fresh) provide(comm, accord.bytes);
  layout.place(memory_);
  layout_ = std::move(layout);
}

// All ranks make channels and memory anew as soon as one of them has to.
void PipeRunner::provide(Comm& comm, size_t bytes) {
  release();
  activations_ = comm.make_channel("activations");
  gradients_ = comm.make_channel("gradients");
  if (bytes > 0) memory_ = static_cast<std::byte*>(comm.allocate_memory(bytes));
  memory_bytes_ = bytes;
  comm_serial_ = comm.serial;
}

void PipeRunner::exchange(const Instruction& instruction) {
  const PipeArea area = layout_.area(instruction);
  const bool sends = instruction.op == PipeOp::kSendActivation || instruction.op == PipeOp::kSendGrad;
  const bool forward = instruction.op == PipeOp::kSendActivation || instruction.op == PipeOp::kRecvActivation;
  Call call;
  call.kind = sends ? OpKind::kSend : OpKind::kRecv;
  call.dtype = DSC_DTYPE_U8;
  call.root = instruction.peer;
  call.send = sends ? area.data : nullptr;
  call.recv = sends ? nullptr : area.data;
  call.count = area.bytes;
  (forward ? *activations_ : *gradients_).run(call);
}

void PipeRunner::call_back(Comm& comm, PipeActions& actions, const Instruction& instruction, Losses& losses) {
  PipeBuffers buffers = layout_.buffers(instruction.buffer);
  double loss = 0;
  if (instruction.op == PipeOp::kForward && !needs_->has(PipeOp::kSendActivation)) buffers.loss = &loss;
  std::string problem;
  capture(
      [&] {
        const int32_t answer = actions.carry_out(instruction, buffers);
        if (answer != 0) problem = "returned " + std::to_string(answer);
      },
      [&](dsc_result_t, const char* words) { problem = std::string("threw: ") + words; });
  if (!problem.empty()) {
    const Failure cause = failure_here(comm, DSC_ERR_CALLBACK,
                                       "the callback for " + dsc::describe(instruction) + " " + problem);
    comm.revoke(cause);
    fail(cause.code, "%s", cause.text.c_str());
  }
  losses.sum += loss;
  losses.count += buffers.loss ? 1 : 0;
}

// Something failed here: nobody may wait for this rank, whatever he waits for.
void PipeRunner::end_everywhere(Comm& comm) noexcept {
  Failure cause;
  cause.code = DSC_ERR_REVOKED;
  const auto find = [&] {
    for (const Comm* place : {static_cast<const Comm*>(&comm), static_cast<const Comm*>(activations_.get()),
                              static_cast<const Comm*>(gradients_.get())})
      if (cause = place->failure(); cause.revoked) return;
    cause = failure_here(comm, DSC_ERR_REVOKED, "the run was left before its end");
  };
  capture(find, [](dsc_result_t, const char*) {});
  comm.revoke(cause);
}

double PipeRunner::run(Comm& comm, PipeActions& actions, const PipeShapes& shapes) {
  prepare(comm, actions, shapes);
  // Also when the thread is cancelled inside a callback.
  struct EndUnlessDone {
    PipeRunner& runner;
    Comm& comm;
    bool done = false;
    ~EndUnlessDone() {
      if (!done) runner.end_everywhere(comm);
    }
  } end{*this, comm};
  for (const auto& channel : {activations_, gradients_}) channel->set_timeout_ms(comm.timeout_ms());
  Losses losses;
  Instruction instruction;
  schedule_.reset();
  while (schedule_.next(instruction)) {
    if (is_message(instruction.op))
      exchange(instruction);
    else
      call_back(comm, actions, instruction, losses);
  }
  const double mean = mean_of_all(comm, losses.sum, losses.count);
  end.done = true;
  return mean;
}

}  // namespace dsc
