#include "control/processors.hpp"

#include <sched.h>

#include <bit>
#include <numeric>

namespace dsc {

ProcessorSet allowed_processors() noexcept {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ProcessorSet found{};
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return found;
  for (size_t cpu = 0; cpu < found.size() * 64; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) found[cpu / 64] |= uint64_t{1} << cpu % 64;
  return found;
}

int count_processors(const ProcessorSet& processors) noexcept {
  return std::accumulate(processors.begin(), processors.end(), 0,
                         [](int sum, uint64_t word) { return sum + std::popcount(word); });
}

}  // namespace dsc
