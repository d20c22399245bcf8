// Determines which slots of a rank's tokens are sent to experts, and in which order. A slot is one of a
// token's top_k choices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dsc {

// The settings of a plan, which are equal on all ranks.
struct MoeSettings {
  size_t experts = 0;
  size_t top_k = 1;
  size_t capacity = 0;  // largest number of rows per expert and source rank; 0 means no limit
  int32_t drop = 0;     // dsc_moe_drop_t
  bool padded = false;
};

// The experts that the router has chosen on this rank. `expert_ids` has top_k entries per token; -1 means no
// expert.
struct Choice {
  std::span<const int32_t> expert_ids;
  const float* weights;  // one weight per entry; null if the settings do not need them
};

// Returns true if the weights of a choice decide which rows are dropped.
bool needs_weights(const MoeSettings& settings) noexcept;

// Throws INVALID_ARG if a setting is out of range, or if an expert or weight is invalid. In the latter case,
// the message contains its position.
void check_choice(const MoeSettings& settings, const Choice& choice);

// The slots that are sent, ordered by expert and then by slot number.
struct ChosenSlots {
  std::vector<size_t> slots;
  std::vector<size_t> counts;  // number of these slots per expert
  size_t dropped = 0;          // number of slots beyond the capacity
};

ChosenSlots choose_slots(const MoeSettings& settings, const Choice& choice);

}  // namespace dsc
