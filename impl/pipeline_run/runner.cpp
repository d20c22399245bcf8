#include "pipeline_run/runner.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "base/log.hpp"
#include "comm/memory.hpp"
#include "pipeline_run/running_pass.hpp"
#include "pipeline_run/shape_header.hpp"
#include "pipeline_run/unwritten.hpp"

namespace dsc {
namespace {

constexpr PipeOp kPasses[] = {PipeOp::kForward, PipeOp::kBackward, PipeOp::kBackwardInput,
                              PipeOp::kBackwardWeight};

// Describes a plan. If the descriptions of two plans are equal, the plans are equal.
std::string describe(const PipelinePlan& plan, const std::optional<uint64_t>& fingerprint) {
  const ScheduleSpec& spec = plan.spec;
  std::string text = spec.name + " (stages " + std::to_string(spec.stages) + ", micro-batches " +
                     std::to_string(spec.micro_batches) + ", chunks " + std::to_string(spec.chunks);
  if (spec.micro_batch_group > 0) text += ", micro-batch groups of " + std::to_string(spec.micro_batch_group);
  if (plan.placement.shape() == PlacementShape::kZigZag) text += ", zigzag";
  if (plan.placement.shape() == PlacementShape::kApart) text += ", apart";
  if (spec.forward_only) text += ", forward only";
  if (spec.merge_backward) text += ", merge_backward";
  if (spec.messages == PipeMessages::kAtOnce) text += ", messages at once";
  if (fingerprint) text += ", hash of the order " + std::to_string(*fingerprint);
  return text + ")";
}

// Returns the pairs of stages between which activations flow: first the sender, then the receiver.
std::vector<std::pair<int, int>> edges_of(const Placement& placement) {
  std::vector<std::pair<int, int>> edges;
  for (int32_t part = 0; part < placement.parts() && placement.has_output(part); ++part) {
    const std::pair<int, int> edge{placement.stage(part), placement.stage(part + 1)};
    if (edge.first != edge.second) edges.push_back(edge);
  }
  std::ranges::sort(edges);
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  return edges;
}

void check_stage(const ScheduleSpec& spec, const Comm& comm) {
  if (spec.stages != comm.size() || spec.stage != comm.rank())
    fail(DSC_ERR_INVALID_ARG,
         "the schedule is for stage %d of %d, expected stage %d of %d: each rank runs the stage with its own "
         "number",
         spec.stage, spec.stages, comm.rank(), comm.size());
}

// Checks that every kind of pass in the schedule has a callback. Other operations may lack a callback; they
// are then skipped.
void check_actions(const PipeNeeds& needs, const PipeActions& actions) {
  for (const PipeOp op : kPasses)
    if (needs.has(op) && !actions.has(op))
      fail(DSC_ERR_INVALID_ARG, "there is no callback for %s, but the schedule has %s", pipe_op_name(op),
           describe(*needs.first(op)).c_str());
}

void check_memory(const Comm& comm, const PipeShapes& shapes) {
  Tensor whole;
  whole.data = shapes.memory;
  whole.count = shapes.memory_bytes;
  whole.dtype = DSC_DTYPE_U8;
  whole.device = shapes.on_device() ? comm.device() : -1;
  if (const auto problem = first_problem(comm, {&whole, 1}, true))
    fail(problem->code, "options->memory%s", problem->text.substr(problem->text.find(": ")).c_str());
}

// Describes the memory properties that must be the same on all ranks. The text becomes part of the
// description that ranks compare.
std::string describe_memory(const PipeShapes& shapes) {
  std::string text;
  if (shapes.are_variable) text += " with variable shapes";
  if (shapes.on_device()) text += " on devices";
  if (shapes.memory) text += " in memory of the caller";
  return text;
}

Failure failure_here(const Comm& comm, dsc_result_t code, const std::string& text) {
  Failure cause;
  cause.code = code;
  cause.ranks = {comm.rank()};
  cause.set_group(comm.id(), comm.name());
  cause.operation = "pipe_run";
  cause.text.add("rank %d: %s", comm.rank(), text.c_str());
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

void free_memory(std::byte* memory) noexcept {
  if (memory) capture([&] { release_memory(memory); }, [](dsc_result_t, const char*) {});
}

Call message_of(const Instruction& instruction, bool sends, void* data, size_t bytes) {
  return call_of_bytes(sends ? OpKind::kSend : OpKind::kRecv, instruction.peer, sends ? data : nullptr,
                       sends ? nullptr : data, bytes);
}

}  // namespace

PipeRunner::~PipeRunner() {
  release();
  for (std::byte* memory : replaced_) free_memory(memory);
}

void PipeRunner::keep_memory() {
  if (!memory_) return;
  replaced_.push_back(memory_);
  memory_ = nullptr;
}

void PipeRunner::release() noexcept {
  if (device_ && !device_->wait_idle(Deadline::after_ms(activations_->timeout_ms()))) {
    log(DSC_LOG_LEVEL_WARN,
        "%zu bytes of activations are not freed, because the run on the device did not end within %d ms",
        memory_bytes_, activations_->timeout_ms());
    memory_ = nullptr;
  }
  device_.reset();
  activations_.reset();
  gradients_.reset();
  free_memory(std::exchange(memory_, nullptr));
  memory_bytes_ = 0;
  comm_serial_ = 0;
}

const PipeNeeds& PipeRunner::needs() {
  if (!needs_) needs_.emplace(schedule_);
  return *needs_;
}

size_t PipeRunner::bytes_for(const PipeShapes& shapes) {
  const StageLayout layout(nullptr, shapes, needs(), plan_, schedule_.spec().stage, schedule_.buffers());
  schedule_.reset();  // needs() resets the schedule only the first time
  return layout.bytes_anywhere();
}

StageLayout PipeRunner::lay_out(Comm& comm, const PipeRequest& request) {
  check_stage(schedule_.spec(), comm);
  check_actions(needs(), *request.actions);
  const PipeShapes& shapes = request.shapes;
  StageLayout layout(&comm, shapes, needs(), plan_, schedule_.spec().stage, schedule_.buffers());
  if (shapes.on_device() && comm.device() >= 0) DeviceOrder(comm).check(shapes.stream);
  if (shapes.memory) {
    check_memory(comm, shapes);
    layout.fit_into(shapes.memory, shapes.memory_bytes);
  }
  return layout;
}

// Describes what this rank is about to run. An error becomes part of the description, so that every rank can
// report it.
PipeSignature PipeRunner::signature_of(Comm& comm, const std::function<PipeRequest()>& read,
                                       PipeRequest& request, StageLayout& layout) {
  PipeSignature signature;
  const auto fill = [&] {
    if (plan_.is_custom && !fingerprint_) fingerprint_ = fingerprint_of(plan_);
    signature.schedule = describe(plan_, fingerprint_);
    request = read();
    signature.wants_loss = request.wants_loss;
    signature.schedule += describe_memory(request.shapes);
    signature.inputs = describe(request.shapes.inputs);
    signature.outputs = describe(request.shapes.outputs);
    layout = lay_out(comm, request);
    signature.edges = edges_of(plan_.placement);
    signature.bytes = layout.bytes();
    const bool is_given = request.shapes.memory != nullptr;
    if (comm_serial_ == comm.serial && (device_ != nullptr) == request.shapes.on_device() &&
        memory_is_given_ == is_given) {
      signature.held_bytes = is_given ? SIZE_MAX : memory_bytes_;
      signature.channel = activations_->id();
    }
  };
  capture(fill, [&](dsc_result_t code, const char* text) {
    signature.code = code;
    signature.text = text;
  });
  return signature;
}

// Makes channels and memory. All ranks do so together if the channels or memory of any rank are missing or
// outdated.
void PipeRunner::provide(Comm& comm, size_t bytes, const PipeShapes& shapes) {
  if (shapes.keeps_replaced) keep_memory();
  release();
  activations_ = comm.make_channel("activations of " + comm.name());
  gradients_ = comm.make_channel("gradients of " + comm.name());
  memory_is_given_ = shapes.memory != nullptr;
  if (bytes > 0 && !memory_is_given_)
    memory_ = static_cast<std::byte*>(shapes.on_device() ? comm.allocate_on_device(bytes)
                                                         : comm.allocate_memory(bytes));
  if (shapes.on_device()) device_ = std::make_unique<DeviceOrder>(*activations_);
  memory_bytes_ = bytes;
  comm_serial_ = comm.serial;
}

// Exchanges the sizes of an activation before the activation itself. Headers are in host memory even for
// device tensors, because the host needs the sizes to put work on a stream.
void PipeRunner::exchange_shapes(const Instruction& instruction) {
  const bool sends = instruction.op == PipeOp::kSendActivation;
  const auto tensors = layout_.activations(instruction);
  const auto peer = static_cast<size_t>(instruction.peer);
  const int32_t part = plan_.placement.part(schedule_.spec().stage, instruction.chunk);
  const ShapeHeader header{.sequence = (sends ? shapes_sent_ : shapes_received_)[peer]++,
                           .micro_batch = instruction.micro_batch,
                           .part = sends ? part + 1 : part};
  auto bytes =
      sends ? write_shape_header(header, tensors) : std::vector<std::byte>(shape_header_bytes(tensors));
  activations_->run(message_of(instruction, sends, bytes.data(), bytes.size()));
  if (sends) return;
  read_shape_header(bytes, header, tensors, layout_.input_sizes());
  layout_.take_input_shapes(instruction);
}

void PipeRunner::exchange(const Instruction& instruction) {
  const bool forward = instruction.op == PipeOp::kSendActivation || instruction.op == PipeOp::kRecvActivation;
  if (is_variable_ && forward) exchange_shapes(instruction);
  layout_.areas(instruction, areas_);
  for (const PipeArea& area : areas_) exchange(instruction, area);
}

void PipeRunner::exchange(const Instruction& instruction, const PipeArea& area) {
  const bool sends = instruction.op == PipeOp::kSendActivation || instruction.op == PipeOp::kSendGrad;
  const bool forward = instruction.op == PipeOp::kSendActivation || instruction.op == PipeOp::kRecvActivation;
  const Call call = message_of(instruction, sends, area.data, area.bytes);
  Comm& channel = forward ? *activations_ : *gradients_;
  if (!device_) return channel.run(call);
  if (sends)
    device_->send(channel, call, instruction.buffer);
  else
    device_->receive(channel, call, instruction.buffer);
}

// Calls the callback of an instruction and checks its results. Returns an error message; empty on success.
std::string PipeRunner::call_action(PipeActions& actions, const Instruction& instruction,
                                    const PipeBuffers& buffers) {
  std::string problem;
  if (checks_unwritten_) fill_unwritten(instruction, buffers);
  capture(
      [&] {
        const RunningPass inside(instruction);
        const int32_t answer = actions.carry_out(instruction, buffers);
        if (answer == 0) return;
        const std::string words = actions.problem();
        problem = "returned " + std::to_string(answer) + (words.empty() ? "" : ": " + words);
      },
      [&](dsc_result_t, const char* words) { problem = std::string("threw: ") + words; });
  if (checks_unwritten_ && problem.empty()) problem = find_unwritten(instruction, buffers);
  if (problem.empty() && buffers.output_shapes)
    capture(
        [&] { layout_.take_output_shapes(instruction); },
        [&](dsc_result_t, const char* words) { problem = std::string("set an invalid shape: ") + words; });
  return problem;
}

void PipeRunner::call_back(Comm& comm, PipeActions& actions, const Instruction& instruction, Losses& losses) {
  PipeBuffers buffers = layout_.buffers(instruction);
  if (device_) device_->reuse(instruction.buffer);
  double loss = 0;
  const Placement& placement = plan_.placement;
  if (instruction.op == PipeOp::kForward &&
      !placement.has_output(placement.part(schedule_.spec().stage, instruction.chunk)))
    buffers.loss = &loss;
  if (const std::string problem = call_action(actions, instruction, buffers); !problem.empty()) {
    // If a failed message left the input incomplete, report that failure instead.
    if (device_) expect_alive();
    const Failure cause = failure_here(comm, DSC_ERR_CALLBACK,
                                       "the callback for " + dsc::describe(instruction) + " " + problem);
    comm.revoke(cause);
    throw Error(cause);
  }
  losses.sum += loss;
  losses.count += buffers.loss ? 1 : 0;
}

void PipeRunner::expect_alive() const {
  for (const auto& channel : {activations_, gradients_})
    if (channel->revoked()) throw Error(channel->failure());
}

// Revokes all communicators after this rank has failed, so that no other rank keeps waiting for it.
void PipeRunner::end_everywhere(Comm& comm, dsc_result_t code, const char* text) noexcept {
  Failure cause;
  cause.code = code;
  const auto find = [&] {
    for (const Comm* group : {static_cast<const Comm*>(&comm), static_cast<const Comm*>(activations_.get()),
                              static_cast<const Comm*>(gradients_.get())})
      if (group && (cause = group->failure()).revoked) return;
    cause = failure_here(comm, code, text);
  };
  capture(find, [](dsc_result_t, const char*) {});
  comm.revoke(cause);
  if (device_) device_->give_up();
}

double PipeRunner::carry_out(Comm& comm, PipeActions& actions, bool wants_loss) {
  for (const auto& channel : {activations_, gradients_}) channel->set_timeout_ms(comm.timeout_ms());
  Losses losses;
  Instruction instruction;
  schedule_.reset();
  while (schedule_.next(instruction)) {
    if (is_message(instruction.op)) exchange(instruction);
    // Instructions without a callback are skipped. One of these is kOverlap, because its two passes follow as
    // separate instructions.
    else if (actions.has(instruction.op))
      call_back(comm, actions, instruction, losses);
  }
  if (device_) {
    device_->end();
    expect_alive();
  }
  const double mean = wants_loss ? mean_of_all(comm, losses.sum, losses.count) : 0;
  if (device_) expect_alive();
  return mean;
}

double PipeRunner::run(Comm& comm, const std::function<PipeRequest()>& read) {
  PipeRequest request;
  StageLayout layout;
  const PipeAgreement agreement = agree(comm, signature_of(comm, read, request, layout));
  struct EndIfCancelled {
    PipeRunner& runner;
    Comm& comm;
    bool over = false;
    ~EndIfCancelled() {
      if (!over) runner.end_everywhere(comm, DSC_ERR_REVOKED, "its thread was canceled in a callback");
    }
  } cancelled{*this, comm};
  double mean = 0;
  const auto body = [&] {
    const PipeShapes& shapes = request.shapes;
    if (agreement.fresh) provide(comm, agreement.bytes, shapes);
    if (device_) device_->begin(shapes.stream, schedule_.buffers());
    layout.assign_memory(shapes.memory ? layout.fit_into(shapes.memory, shapes.memory_bytes) : memory_);
    layout_ = std::move(layout);
    is_variable_ = shapes.are_variable;
    checks_unwritten_ = checks_unwritten();
    shapes_sent_.assign(static_cast<size_t>(comm.size()), 0);
    shapes_received_ = shapes_sent_;
    mean = carry_out(comm, *request.actions, agreement.wants_loss);
  };
  capture(body, [&](const Error& error) {
    cancelled.over = true;
    end_everywhere(comm, error.code(), error.what());
    const Failure first = comm.failure();  // if another rank failed first, its failure is reported
    const bool was_own =
        first.code == error.code() && (first.code != DSC_ERR_CALLBACK || first.rank() == comm.rank());
    if (first.revoked && !was_own) throw Error(first);
    throw Error(error);
  });
  cancelled.over = true;
  return mean;
}

}  // namespace dsc
