// Moves the data of one operation. Data is gathered or combined on each host, exchanged between the leaders,
// and distributed on each host. Unless the data is inline, the ranks have compared their calls before.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "control/call.hpp"
#include "engine_hier/hier_steps.hpp"

namespace dsc {

// If a leader's blocks have at most this many bytes together, packing them into one exchange costs less than
// one step per block.
inline constexpr size_t kAtOnceBytes = size_t{1} << 18;

// Collective. Returns whether all ranks are connected to each other (see HierLinks::connect_ranks()).
bool ranks_connect(HierContext& context, Deadline deadline);

class HierTransfer : private HierSteps {
 public:
  using HierSteps::HierSteps;

  // Runs the operation to its end. Throws what the host engine and the transport throw.
  void run();

  // See Engine.
  static std::optional<std::string> unsupported_reason(const Call& call);

 private:
  void all_reduce();
  void reduce();
  void reduce_scatter();
  void broadcast();
  void all_gather();
  void exchange_blocks();

  bool sums_directly() const noexcept { return one_rank_per_host() && !widens(); }
  size_t sum_piece() const noexcept;  // elements
  void combine_on_host(const void* values, void* sum, size_t count);
  void combine_widened(const void* values, void* sum, size_t count);
  void hand_out(const void* part, const std::vector<size_t>& elements, void* result);

  void gather_at_once();
  void scatter_at_once();
  void broadcast_directly();
  void all_gather_directly();
  void exchange_directly();
  void pass_on_host(size_t block);
  void gather_in_steps();
  void scatter_in_steps();
};

}  // namespace dsc
