// A stage's order as a short text for the page, where many orders stand.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dsc/dsc.h"

namespace dscctl::schedule {

// "F(FB)60B": letters as in pictures, the chunk behind them if it is not 0, "+" if the operation overlaps
// with the next one, "." for an idle step, and what is repeated in parentheses. Micro-batches are counted up
// for each letter and chunk; with "-" at the start those of backward passes are counted down. Nothing for an
// order that is not like that.
std::optional<std::string> order_text(const std::vector<dsc_pipe_compute_t>& order, int32_t micro_batches);

}  // namespace dscctl::schedule
