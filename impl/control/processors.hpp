// The processors that ranks may run on.
#pragma once

#include <array>
#include <cstdint>

namespace dsc {

// A bit per processor. Empty when there are more than it has bits.
using ProcessorSet = std::array<uint64_t, 16>;

// Those of the calling thread.
ProcessorSet allowed_processors() noexcept;

int count_processors(const ProcessorSet& processors) noexcept;

}  // namespace dsc
