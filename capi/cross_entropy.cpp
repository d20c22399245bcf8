#include "dsc/cross_entropy.h"

#include "base/guard.hpp"
#include "base/options.hpp"
#include "comm_call.hpp"
#include "host_array.hpp"
#include "tensor_parallel/cross_entropy.hpp"

namespace {

static_assert(sizeof(dsc::TokenState) == 2 * sizeof(double), "state is an array of pairs of f64");

dsc_vocab_cross_entropy_options_t default_options() {
  dsc_vocab_cross_entropy_options_t options{};
  options.struct_size = sizeof options;
  options.ignore_index = INT64_MIN;
  return options;
}

using dsc::Array;
using dsc::check_apart;
using dsc::check_array;

void check_logit_type(int32_t dtype) {
  dsc::check_dtype(dtype);
  if (dtype != DSC_DTYPE_F32 && dtype != DSC_DTYPE_F64 && dtype != DSC_DTYPE_BF16 && dtype != DSC_DTYPE_F16)
    dsc::fail(DSC_ERR_UNSUPPORTED, "dtype is %s, expected f32, f64, bf16 or f16", dsc::dtype_name(dtype));
}

// The checked arguments that forward and backward have in common.
struct Given {
  Given(const dsc::Comm& comm, const void* logits_in, const int64_t* targets_in, size_t tokens, size_t vocab,
        int32_t dtype, const dsc_vocab_cross_entropy_options_t* options_in)
      : tokens(tokens) {
    check_logit_type(dtype);
    const auto options = dsc::read_sized(options_in, default_options(), "options");
    problem.dtype = dtype;
    problem.vocab = vocab;
    problem.own = dsc::split_range(vocab, static_cast<size_t>(comm.size()), static_cast<size_t>(comm.rank()));
    problem.ignore_index = options.ignore_index;
    problem.label_smoothing = options.label_smoothing;
    problem.z_loss = options.z_loss;
    // Checks the size of the sums of all tokens, which take more memory than any other array.
    dsc::checked_bytes(tokens, DSC_DTYPE_F64, 3);
    targets = {"targets", targets_in, tokens * sizeof(int64_t)};
    check_array(comm, targets, sizeof(int64_t));
    problem.targets = {targets_in, tokens};
    dsc::check_cross_entropy(problem);
    logits = {"logits", logits_in, dsc::checked_bytes(tokens, dtype, problem.own.count)};
    check_array(comm, logits, dsc::dtype_bytes(dtype));
  }

  int32_t loss_type() const { return problem.dtype == DSC_DTYPE_F64 ? DSC_DTYPE_F64 : DSC_DTYPE_F32; }
  Array losses(const char* name, const void* data) const {
    return {name, data, tokens * dsc::dtype_bytes(loss_type())};
  }
  Array states(const void* data) const { return {"state", data, tokens * sizeof(dsc::TokenState)}; }

  size_t tokens;
  dsc::CrossEntropy problem;
  Array logits{};
  Array targets{};
};

}  // namespace

dsc_result_t dsc_vocab_cross_entropy_options_init(dsc_vocab_cross_entropy_options_t* options,
                                                  size_t struct_size) {
  return dsc::guard_pure(__func__,
                         [&] { dsc::init_sized(options, struct_size, default_options(), "options"); });
}

dsc_result_t dsc_vocab_cross_entropy_forward(dsc_comm_t* comm, const void* logits, const int64_t* targets,
                                             size_t tokens, size_t vocab, dsc_dtype_t dtype,
                                             const dsc_vocab_cross_entropy_options_t* options, void* loss,
                                             double* state) {
  return dsc::guard(__func__, [&] {
    dsc::CommCall inside(comm);
    const Given given(*inside, logits, targets, tokens, vocab, dtype, options);
    const Array losses = given.losses("loss", loss), states = given.states(state);
    check_array(*inside, losses, dsc::dtype_bytes(given.loss_type()));
    if (state) check_array(*inside, states, sizeof(double));
    for (const Array& input : {given.logits, given.targets}) {
      check_apart(losses, input);
      check_apart(states, input);
    }
    check_apart(losses, states);
    const auto kept = reinterpret_cast<dsc::TokenState*>(state);
    dsc::cross_entropy_forward(*inside, given.problem, logits, loss, {kept, kept ? tokens : 0});
  });
}

dsc_result_t dsc_vocab_cross_entropy_backward(const dsc_comm_t* comm, const void* logits,
                                              const int64_t* targets, size_t tokens, size_t vocab,
                                              dsc_dtype_t dtype,
                                              const dsc_vocab_cross_entropy_options_t* options,
                                              const double* state, const void* loss_gradient,
                                              void* gradient) {
  return dsc::guard(__func__, [&] {
    const auto inside = dsc::pin_comm(comm);
    const Given given(*inside, logits, targets, tokens, vocab, dtype, options);
    const Array states = given.states(state), losses = given.losses("loss_gradient", loss_gradient);
    const Array result{"gradient", gradient, given.logits.bytes};
    check_array(*inside, states, sizeof(double));
    if (loss_gradient) check_array(*inside, losses, dsc::dtype_bytes(given.loss_type()));
    check_array(*inside, result, dsc::dtype_bytes(dtype));
    for (const Array& input : {given.targets, states, losses}) check_apart(result, input);
    if (gradient != logits) check_apart(result, given.logits);
    const std::span kept(reinterpret_cast<const dsc::TokenState*>(state), tokens);
    dsc::cross_entropy_backward(given.problem, logits, kept, loss_gradient, gradient);
  });
}
