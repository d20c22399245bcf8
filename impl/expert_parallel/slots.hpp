// Determines which slots of a rank's tokens are sent to their experts, and in which order.
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
  size_t capacity = 0;  // most rows of each expert and source rank; 0: no limit
  int32_t drop = 0;     // dsc_moe_drop_t
  bool padded = false;
};

// The experts that the router chose on this rank: `expert_ids` has top_k entries for each token, -1 for none.
struct Choice {
  std::span<const int32_t> expert_ids;
  const float* weights;  // one for each entry; null if the settings do not need them
};

// Returns whether the weights of a choice decide which rows are dropped.
bool needs_weights(const MoeSettings& settings) noexcept;

// Throws INVALID_ARG, with the position, for settings out of range, and for an invalid expert or weight.
void check_choice(const MoeSettings& settings, const Choice& choice);

// The slots that are sent, ordered by expert and then by index.
struct ChosenSlots {
  std::vector<size_t> slots;
  std::vector<size_t> counts;  // of each expert
  size_t dropped = 0;          // slots beyond the capacity
};

ChosenSlots choose_slots(const MoeSettings& settings, const Choice& choice);

}  // namespace dsc
