// Cross entropy for logits whose vocabulary is divided among the ranks of a communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/split_range.hpp"
#include "comm/comm.hpp"

namespace dsc {

// The arguments of both passes. Only `own` differs between ranks.
struct CrossEntropy {
  int32_t dtype = 0;                   // element type of the logits
  size_t vocab = 0;                    // size of the whole vocabulary
  Range own{};                         // part of the vocabulary that this rank holds
  std::span<const int64_t> targets{};  // one target per token
  // Tokens with this target have no loss; INT64_MIN means that there are none.
  int64_t ignore_index = INT64_MIN;
  double label_smoothing = 0;  // total probability of all words except the target
  double z_loss = 0;           // factor of the square of log(sum(exp(logits)))
};

// Throws INVALID_ARG if a setting is out of range, or if a target is neither in the vocabulary nor ignored.
void check_cross_entropy(const CrossEntropy& problem);

// The values per token that the backward pass needs. Both are taken over the whole vocabulary: the largest
// logit, and the sum of exp(logit - largest).
struct TokenState {
  double max;
  double exp_sum;
};

// Collective. Writes one loss per token, which is the same on all ranks. Its type is f64 if the logits are
// f64, and f32 otherwise. `states` is empty or has one entry per token.
void cross_entropy_forward(Comm& comm, const CrossEntropy& problem, const void* logits, void* loss,
                           std::span<TokenState> states);

// Writes the gradients of the logits, which may overwrite the logits. `loss_gradient` has one number per
// token, in the type of the loss; null means 1 for all tokens.
void cross_entropy_backward(const CrossEntropy& problem, const void* logits,
                            std::span<const TokenState> states, const void* loss_gradient, void* gradient);

}  // namespace dsc
