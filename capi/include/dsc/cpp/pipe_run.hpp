// Runs a pipeline schedule: functions compute, and the library sends and receives between them.
#ifndef DSC_CPP_PIPE_RUN_HPP
#define DSC_CPP_PIPE_RUN_HPP

#include <cstddef>
#include <cstdint>
#include <dsc/cpp/callback.hpp>
#include <dsc/cpp/pipe.hpp>
#include <dsc/cpp/tensor.hpp>
#include <functional>
#include <string>

namespace dsc {
inline namespace v0 {

// What a function of a pipeline gets. Its memory is kept from forward to the end of the backward pass of the
// micro-batch, and no longer.
class pipe_call {
 public:
  explicit pipe_call(const dsc_pipe_call_t& raw) : instruction(*raw.instruction), raw_(raw) {}

  const pipe_instruction instruction;

  std::size_t n_inputs() const noexcept { return raw_.n_inputs; }
  std::size_t n_outputs() const noexcept { return raw_.n_outputs; }

  // Activations from the previous part of the model, and for the next one, which forward writes.
  template <class T>
  span<const T> input(std::size_t index = 0) const {
    return tensor_at<T>("input", raw_.input_tensors, raw_.inputs, raw_.n_inputs, index);
  }
  template <class T>
  span<T> output(std::size_t index = 0) const {
    return tensor_at<T>("output", raw_.output_tensors, raw_.outputs, raw_.n_outputs, index);
  }

  // Gradients of the outputs, and of the inputs, which backward writes.
  template <class T>
  span<const T> output_grad(std::size_t index = 0) const {
    return tensor_at<T>("gradient of output", raw_.output_tensors, raw_.output_grads, raw_.n_outputs, index);
  }
  template <class T>
  span<T> input_grad(std::size_t index = 0) const {
    return tensor_at<T>("gradient of input", raw_.input_tensors, raw_.input_grads, raw_.n_inputs, index);
  }

  // Sets the loss of the micro-batch, in forward of the last part of the model.
  void set_loss(double loss) const {
    if (raw_.loss == nullptr)
      throw error(errc::state, "set_loss: only forward of the last part of the model has a loss");
    *raw_.loss = loss;
  }
  bool has_loss() const noexcept { return raw_.loss != nullptr; }

  // All fields in the form of C, such as output_shapes with variable shapes.
  const dsc_pipe_call_t& raw() const noexcept { return raw_; }

 private:
  template <class T>
  static span<T> tensor_at(const char* what, const dsc_tensor_t* list, void* const* places, std::size_t n,
                           std::size_t index) {
    const std::string which = std::string(what) + " " + std::to_string(index);
    if (list == nullptr || places == nullptr || index >= n)
      detail::wrong("this call has no " + which + "; it has " + std::to_string(places == nullptr ? 0 : n));
    if (list[index].dtype != detail::value(dtype_of_v<T>))
      detail::wrong(which + " has elements of " + dsc_dtype_name(list[index].dtype) + ", not of " +
                    name(dtype_of_v<T>));
    if (places[index] == nullptr && list[index].count > 0)
      detail::wrong("this call has no " + which + ", because integers have no gradient");
    return {static_cast<T*>(places[index]), list[index].count};
  }

  const dsc_pipe_call_t& raw_;
};

// The functions of a run, one for every kind of pass in the schedule; the others may be empty. They run on
// the thread that calls pipe_run(), and may use other communicators, but not that of the run.
struct pipe_callbacks {
  using function = std::function<void(const pipe_call&)>;

  function load_micro_batch;
  function forward;
  function backward;
  function backward_input;
  function backward_weight;
  function reduce_tied_grads;
  function reduce_grads;
  function optimizer_step;
};

// The tensors of one micro-batch at the two ends of a stage: empty at the first and the last end of the
// pipeline.
struct pipe_shapes {
  tensors inputs, outputs;
};

namespace detail {

struct pipe_context {
  const pipe_callbacks& callbacks;
  kept_exception kept;
};

template <pipe_callbacks::function pipe_callbacks::*Member>
std::int32_t run_pipe_callback(void* context, const dsc_pipe_call_t* raw) {
  auto& self = *static_cast<pipe_context*>(context);
  return self.kept.run(raw->error, raw->error_capacity, [&] { (self.callbacks.*Member)(pipe_call(*raw)); });
}

template <pipe_callbacks::function pipe_callbacks::*Member>
dsc_pipe_fn pipe_callback(const pipe_callbacks& callbacks) {
  return callbacks.*Member ? run_pipe_callback<Member> : nullptr;
}

inline dsc_pipe_callbacks_t pipe_table(pipe_context& context) {
  const pipe_callbacks& set = context.callbacks;
  dsc_pipe_callbacks_t table;
  check(dsc_pipe_callbacks_init(&table, sizeof table));
  table.context = &context;
  table.load_micro_batch = pipe_callback<&pipe_callbacks::load_micro_batch>(set);
  table.forward = pipe_callback<&pipe_callbacks::forward>(set);
  table.backward = pipe_callback<&pipe_callbacks::backward>(set);
  table.backward_input = pipe_callback<&pipe_callbacks::backward_input>(set);
  table.backward_weight = pipe_callback<&pipe_callbacks::backward_weight>(set);
  table.reduce_tied_grads = pipe_callback<&pipe_callbacks::reduce_tied_grads>(set);
  table.reduce_grads = pipe_callback<&pipe_callbacks::reduce_grads>(set);
  table.optimizer_step = pipe_callback<&pipe_callbacks::optimizer_step>(set);
  return table;
}

}  // namespace detail

// Runs a schedule from its first to its last instruction. Rank s of the communicator is stage s. Collective.
// Returns the mean of the losses, on all ranks.
//
// If a function throws, the run ends on all ranks and the communicator is revoked. This rank throws the same
// exception; the others throw a dsc::error with its text, and with the rank and instruction where it was
// thrown.
inline double pipe_run(const comm_view& comm, pipe_schedule& schedule, const pipe_callbacks& callbacks,
                       const pipe_shapes& shapes = {}, pipe_run_options options = {}) {
  detail::pipe_context context{callbacks, {}};
  const dsc_pipe_callbacks_t table = detail::pipe_table(context);
  options.inputs = shapes.inputs.empty() ? nullptr : shapes.inputs.data();
  options.n_inputs = shapes.inputs.size();
  options.outputs = shapes.outputs.empty() ? nullptr : shapes.outputs.data();
  options.n_outputs = shapes.outputs.size();
  double mean_loss = 0;
  context.kept.check(dsc_pipe_run(schedule.get(), comm.get(), &table, &options, &mean_loss));
  return mean_loss;
}

}  // namespace v0
}  // namespace dsc

#endif  // DSC_CPP_PIPE_RUN_HPP
