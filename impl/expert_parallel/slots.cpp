#include "expert_parallel/slots.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "dsc/types.h"

namespace dsc {
namespace {

constexpr size_t kMostSlots = 64;  // largest number of slots per token
// A plan takes memory for each expert. This limit prevents a wrong number from using up the memory.
constexpr size_t kMostExperts = size_t{1} << 24;

void check_settings(const MoeSettings& settings) {
  if (settings.experts < 1 || settings.experts > kMostExperts)
    fail(DSC_ERR_INVALID_ARG, "experts is %zu, expected 1 to %zu", settings.experts, kMostExperts);
  if (settings.top_k < 1 || settings.top_k > kMostSlots)
    fail(DSC_ERR_INVALID_ARG, "top_k is %zu, expected 1 to %zu", settings.top_k, kMostSlots);
  if (settings.drop != DSC_MOE_DROP_LATEST && settings.drop != DSC_MOE_DROP_LIGHTEST)
    fail(DSC_ERR_INVALID_ARG, "drop is %d, expected 1 (latest) or 2 (lightest)", settings.drop);
  if (settings.drop == DSC_MOE_DROP_LIGHTEST && settings.capacity == 0)
    fail(DSC_ERR_INVALID_ARG,
         "drop is 2 (lightest) and capacity is 0, expected a capacity of 1 or more: without one nothing is "
         "dropped");
  if (settings.padded && settings.capacity == 0)
    fail(DSC_ERR_INVALID_ARG, "padded is 1 and capacity is 0, expected a capacity of 1 or more");
}

// Returns the slots of all experts: first those of expert 0 in ascending order, then those of expert 1, and
// so on. `counts` returns the number of slots of each expert.
std::vector<size_t> sort_by_expert(std::span<const int32_t> expert_ids, std::vector<size_t>& counts) {
  for (const int32_t expert : expert_ids)
    if (expert >= 0) ++counts[static_cast<size_t>(expert)];
  std::vector<size_t> next(counts.size());
  size_t total = 0;
  for (size_t expert = 0; expert < counts.size(); ++expert) {
    next[expert] = total;
    total += counts[expert];
  }
  std::vector<size_t> slots(total);
  for (size_t slot = 0; slot < expert_ids.size(); ++slot)
    if (expert_ids[slot] >= 0) slots[next[static_cast<size_t>(expert_ids[slot])]++] = slot;
  return slots;
}

// Moves the `kept` slots with the largest weights to the front. They are in ascending order of slots there.
void keep_heaviest(std::span<size_t> slots, size_t kept, const float* weights) {
  const auto is_heavier = [weights](size_t a, size_t b) {
    return weights[a] != weights[b] ? weights[a] > weights[b] : a < b;
  };
  const auto end = slots.begin() + static_cast<std::ptrdiff_t>(kept);
  std::nth_element(slots.begin(), end, slots.end(), is_heavier);
  std::sort(slots.begin(), end);
}

}  // namespace

bool needs_weights(const MoeSettings& settings) noexcept {
  return settings.capacity > 0 && settings.drop == DSC_MOE_DROP_LIGHTEST;
}

void check_choice(const MoeSettings& settings, const Choice& choice) {
  check_settings(settings);
  const bool weighs = needs_weights(settings);
  for (size_t slot = 0; slot < choice.expert_ids.size(); ++slot) {
    const int32_t expert = choice.expert_ids[slot];
    const size_t token = slot / settings.top_k, k = slot % settings.top_k;
    if (expert < -1 || expert >= static_cast<int64_t>(settings.experts))
      fail(DSC_ERR_INVALID_ARG, "expert_ids[%zu][%zu] is %d, expected 0 to %zu, or -1 for none", token, k,
           expert, settings.experts - 1);
    if (weighs && std::isnan(choice.weights[slot]))
      fail(DSC_ERR_INVALID_ARG, "weights[%zu][%zu] is NaN, expected a number", token, k);
  }
}

ChosenSlots choose_slots(const MoeSettings& settings, const Choice& choice) {
  ChosenSlots chosen;
  chosen.counts.resize(settings.experts);
  chosen.slots = sort_by_expert(choice.expert_ids, chosen.counts);
  if (settings.capacity == 0) return chosen;
  size_t from = 0, to = 0;
  for (size_t& count : chosen.counts) {
    const std::span<size_t> slots(chosen.slots.data() + from, count);
    const size_t kept = std::min(count, settings.capacity);
    if (kept < count && needs_weights(settings)) keep_heaviest(slots, kept, choice.weights);
    std::copy_n(slots.begin(), kept, chosen.slots.begin() + static_cast<std::ptrdiff_t>(to));
    from += count;
    to += kept;
    chosen.dropped += count - kept;
    count = kept;
  }
  chosen.slots.resize(to);
  return chosen;
}

}  // namespace dsc
