// Writes a stage's order as a short text, because the page contains many orders.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dsc/dsc.h"

namespace dscctl::schedule {

// Returns text such as "F(FB)60B". Letters are the same as in pictures. A number after a letter is its chunk,
// unless the chunk is 0. "+" means that the operation overlaps with the next one, "." is an idle step, and
// repetitions are in parentheses. Micro-batches are counted up for each letter and chunk. With "-" at the
// start, micro-batches of backward passes are counted down. Returns nullopt for any other order.
std::optional<std::string> order_text(const std::vector<dsc_pipe_compute_t>& order, int32_t micro_batches);

}  // namespace dscctl::schedule
