// Cross entropy of logits whose vocabulary is split over the ranks of a communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/split_range.hpp"
#include "comm/comm.hpp"

namespace dsc {

// Arguments that are the same on all ranks, except `own`.
struct CrossEntropy {
  int32_t dtype = 0;                   // of the logits
  size_t vocab = 0;                    // on all ranks together
  Range own{};                         // part of the vocabulary that this rank holds
  std::span<const int64_t> targets{};  // one for each token
  int64_t ignore_index = INT64_MIN;    // target of tokens that have no loss; INT64_MIN: none
  double label_smoothing = 0;          // probability that is given to other words than the target
  double z_loss = 0;                   // factor of the square of log(sum(exp(logits)))
};

// Throws INVALID_ARG for settings out of range, and for a target that is neither in the vocabulary nor
// ignored.
void check_cross_entropy(const CrossEntropy& problem);

// What the backward pass needs of each token: the largest logit, and the sum of exp(logit - largest), over
// the whole vocabulary.
struct TokenState {
  double max;
  double exp_sum;
};

// Collective. Writes one loss per token, the same on all ranks: f64 if the logits are f64, otherwise f32.
// `states` is empty or has an entry for each token.
void cross_entropy_forward(Comm& comm, const CrossEntropy& problem, const void* logits, void* loss,
                           std::span<TokenState> states);

// Writes the gradients of the logits; they may overwrite the logits. `loss_gradient` has one number per
// token, of the type of the loss; null means 1 everywhere.
void cross_entropy_backward(const CrossEntropy& problem, const void* logits,
                            std::span<const TokenState> states, const void* loss_gradient, void* gradient);

}  // namespace dsc
