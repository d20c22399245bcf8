#include "tensor_parallel/cross_entropy.hpp"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "dtype/dtype.hpp"
#include "dtype/fp_mode.hpp"
#include "tensor_parallel/cross_entropy_rows.hpp"

namespace dsc {
namespace {

template <typename T>
uint64_t hash_value(const T& value, uint64_t start) {
  return fnv1a({reinterpret_cast<const char*>(&value), sizeof value}, start);
}

uint64_t hash_of_targets(const CrossEntropy& problem) {
  return fnv1a({reinterpret_cast<const char*>(problem.targets.data()), problem.targets.size_bytes()});
}

uint64_t hash_of_options(const CrossEntropy& problem) {
  uint64_t hash = hash_value(problem.dtype, kFnvStart);
  hash = hash_value(problem.ignore_index, hash);
  hash = hash_value(problem.label_smoothing, hash);
  return hash_value(problem.z_loss, hash);
}

// Returns an in-place all-reduce. If targets or options differ between ranks, the call fails with MISMATCH
// instead of computing a meaningless loss. Its note shows a few digits of a hash of the targets and of a hash
// of the options, which is enough to see which of them differ.
Call reduction(const CrossEntropy& problem, int32_t op, std::vector<double>& values) {
  constexpr uint64_t kShown = 0xfff;
  const uint64_t targets = hash_of_targets(problem), options = hash_of_options(problem);
  Call call;
  call.kind = OpKind::kAllReduce;
  call.dtype = DSC_DTYPE_F64;
  call.op = op;
  call.send = call.recv = values.data();
  call.count = values.size();
  call.tag = hash_value(problem.vocab, hash_value(options, targets)) |
             1;  // a tag of 0 would mean that there is no tag
  std::snprintf(call.note, sizeof call.note, "vocab %zu, targets %03" PRIx64 ", options %03" PRIx64,
                problem.vocab, targets & kShown, options & kShown);
  return call;
}

// Returns the weight of the uniform distribution in label smoothing. The target gets the probability 1 -
// weight + weight / vocab, and each other word gets weight / vocab. The target's probability is therefore 1 -
// label_smoothing.
double smoothing_weight(const CrossEntropy& problem) {
  const auto vocab = static_cast<double>(problem.vocab);
  return problem.label_smoothing == 0 ? 0 : problem.label_smoothing * vocab / (vocab - 1);
}

const void* row_of(const CrossEntropy& problem, const void* logits, size_t token) {
  return static_cast<const std::byte*>(logits) + token * problem.own.count * dtype_bytes(problem.dtype);
}

void* row_of(const CrossEntropy& problem, void* logits, size_t token) {
  return const_cast<void*>(row_of(problem, static_cast<const void*>(logits), token));
}

bool is_ignored(const CrossEntropy& problem, size_t token) {
  return problem.ignore_index != INT64_MIN && problem.targets[token] == problem.ignore_index;
}

// Returns true if this rank holds the logit of a token's target. Sets `index` to the position of that logit
// in its row.
bool holds_target(const CrossEntropy& problem, size_t token, size_t& index) {
  index = static_cast<size_t>(problem.targets[token]) - problem.own.begin;
  return index < problem.own.count;
}

// The sums of all tokens over the whole vocabulary. Sums of the same kind are stored in one array each, and
// these arrays follow each other, so that a single all-reduce adds all of them.
struct Sums {
  Sums(size_t tokens, bool with_sum) : tokens(tokens), values((with_sum ? 3 : 2) * tokens) {}

  double& exp_sum(size_t token) { return values[token]; }           // sum of exp(logit - largest)
  double& target(size_t token) { return values[tokens + token]; }   // logit of the target - largest
  double& sum(size_t token) { return values[2 * tokens + token]; }  // sum of logit - largest

  size_t tokens;
  std::vector<double> values;
};

// Sets this rank's part of a token's sums. They are relative to the largest logit of all ranks. If all logits
// of this rank are -infinity, this rank adds 0 to the sum of exponentials, even if the largest logit is also
// -infinity.
void set_part(const CrossEntropy& problem, const void* logits, size_t token, const RowSums& own, double max,
              Sums& sums) {
  sums.exp_sum(token) = own.exp_sum == 0 ? 0 : own.exp_sum * std::exp(own.max - max);
  size_t index = 0;
  if (holds_target(problem, token, index))
    sums.target(token) = element_at(problem.dtype, row_of(problem, logits, token), index) - max;
  if (problem.label_smoothing != 0) sums.sum(token) = own.sum - static_cast<double>(problem.own.count) * max;
}

double loss_of(const CrossEntropy& problem, size_t token, double max, Sums& sums) {
  const double log_sum = std::log(sums.exp_sum(token));
  const double weight = smoothing_weight(problem);
  double loss = log_sum - (1 - weight) * sums.target(token);
  if (weight != 0) loss -= weight * (sums.sum(token) / static_cast<double>(problem.vocab));
  if (problem.z_loss != 0) loss += problem.z_loss * (max + log_sum) * (max + log_sum);
  return loss;
}

void set_number(int32_t dtype, void* numbers, size_t index, double value) {
  if (dtype == DSC_DTYPE_F64)
    static_cast<double*>(numbers)[index] = value;
  else
    static_cast<float*>(numbers)[index] = static_cast<float>(value);
}

double number_at(int32_t dtype, const void* numbers, size_t index) {
  return dtype == DSC_DTYPE_F64 ? static_cast<const double*>(numbers)[index]
                                : static_cast<double>(static_cast<const float*>(numbers)[index]);
}

// Writes d loss / d logit = softmax * (1 + 2 z_loss * log_sum_exp) - weight / vocab; for the target, -(1 -
// weight) is added. The target's element is computed in f64, because its terms nearly cancel each other.
void write_gradient(const CrossEntropy& problem, const void* row, size_t token, const TokenState& state,
                    double factor, void* out) {
  const double weight = smoothing_weight(problem);
  double scale = factor / state.exp_sum;
  if (problem.z_loss != 0) scale *= 1 + 2 * problem.z_loss * (state.max + std::log(state.exp_sum));
  const RowGradient gradient{state.max, scale, factor * weight / static_cast<double>(problem.vocab)};
  size_t index = 0;
  const bool holds = holds_target(problem, token, index);
  const double logit = holds ? element_at(problem.dtype, row, index) : 0;
  write_row_gradient(problem.dtype, row, problem.own.count, gradient, out);
  if (!holds) return;
  const double others = std::exp(logit - state.max) * scale - gradient.shift;
  set_element(problem.dtype, out, index, others - factor * (1 - weight));
}

}  // namespace

void check_cross_entropy(const CrossEntropy& problem) {
  if (problem.vocab == 0) fail(DSC_ERR_INVALID_ARG, "vocab is 0, expected 1 or more");
  if (!(problem.label_smoothing >= 0 && problem.label_smoothing < 1))
    fail(DSC_ERR_INVALID_ARG, "options->label_smoothing is %g, expected at least 0 and below 1",
         problem.label_smoothing);
  if (problem.label_smoothing != 0 && problem.vocab == 1)
    fail(DSC_ERR_INVALID_ARG, "vocab is 1, expected 2 or more with options->label_smoothing");
  if (!(problem.z_loss >= 0 && std::isfinite(problem.z_loss)))
    fail(DSC_ERR_INVALID_ARG, "options->z_loss is %g, expected a finite number of 0 or more", problem.z_loss);
  for (size_t token = 0; token < problem.targets.size(); ++token) {
    const int64_t target = problem.targets[token];
    if (is_ignored(problem, token) || (target >= 0 && static_cast<uint64_t>(target) < problem.vocab))
      continue;
    if (problem.ignore_index == INT64_MIN)
      fail(DSC_ERR_INVALID_ARG, "targets[%zu] is %" PRId64 ", expected 0 to %zu", token, target,
           problem.vocab - 1);
    fail(DSC_ERR_INVALID_ARG, "targets[%zu] is %" PRId64 ", expected 0 to %zu, or %" PRId64 " (ignore_index)",
         token, target, problem.vocab - 1, problem.ignore_index);
  }
}

void cross_entropy_forward(Comm& comm, const CrossEntropy& problem, const void* logits, void* loss,
                           std::span<TokenState> states) {
  const FpMode mode;  // the caller's mode must not change the bits of a loss
  const size_t tokens = problem.targets.size();
  const bool with_sum = problem.label_smoothing != 0;
  std::vector<RowSums> own(tokens);
  std::vector<double> maxima(tokens);
  for (size_t token = 0; token < tokens; ++token) {
    if (is_ignored(problem, token)) continue;
    own[token] = sum_row(problem.dtype, row_of(problem, logits, token), problem.own.count, with_sum);
    maxima[token] = own[token].max;
  }
  comm.run(reduction(problem, DSC_OP_MAX, maxima));

  Sums sums(tokens, with_sum);
  for (size_t token = 0; token < tokens; ++token)
    if (!is_ignored(problem, token)) set_part(problem, logits, token, own[token], maxima[token], sums);
  comm.run(reduction(problem, DSC_OP_SUM, sums.values));

  for (size_t token = 0; token < tokens; ++token) {
    const bool ignored = is_ignored(problem, token);
    set_number(problem.dtype, loss, token, ignored ? 0 : loss_of(problem, token, maxima[token], sums));
    if (!states.empty()) states[token] = {maxima[token], ignored ? 1 : sums.exp_sum(token)};
  }
}

void cross_entropy_backward(const CrossEntropy& problem, const void* logits,
                            std::span<const TokenState> states, const void* loss_gradient, void* gradient) {
  const FpMode mode;
  for (size_t token = 0; token < problem.targets.size(); ++token) {
    void* out = row_of(problem, gradient, token);
    if (is_ignored(problem, token)) {
      if (problem.own.count > 0) std::memset(out, 0, problem.own.count * dtype_bytes(problem.dtype));
      continue;
    }
    write_gradient(problem, row_of(problem, logits, token), token, states[token],
                   loss_gradient ? number_at(problem.dtype, loss_gradient, token) : 1, out);
  }
}

}  // namespace dsc
