// The sets of processors on which ranks may run.
#pragma once

#include <array>
#include <cstdint>

namespace dsc {

// One bit per processor; empty if the system has more processors than bits.
using ProcessorSet = std::array<uint64_t, 16>;

// Returns the processors on which the calling thread may run.
ProcessorSet allowed_processors() noexcept;

int count_processors(const ProcessorSet& processors) noexcept;

}  // namespace dsc
