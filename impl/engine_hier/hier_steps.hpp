// The steps of an operation on this host and between hosts.
//
// Data moves in pieces. While a piece travels between hosts, each host distributes the previous piece and
// gathers the next one. If no host has more than one rank, nothing is gathered or distributed, and data
// travels as a whole.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "engine_hier/hier_call.hpp"
#include "engine_hier/host_outcome.hpp"

namespace dsc {

class HierSteps : protected HierCall {
 public:
  HierSteps(HierContext& context, const Call& call, Deadline deadline) noexcept
      : HierCall(context, call), deadline_(deadline) {}

 protected:
  ~HierSteps() = default;

  // Divides an array of `total` units into pieces of `length`; the caller chooses bytes or elements.
  struct Cut {
    Cut(size_t all, size_t piece) : total(all), length(std::max(piece, size_t{1})) {}
    size_t pieces() const { return (total + length - 1) / length; }
    size_t start(size_t piece) const { return piece * length; }
    // Returns the length of a piece in a block of `part` units, which may be shorter than the array.
    size_t count(size_t piece, size_t part) const {
      return std::min(length, part - std::min(part, start(piece)));
    }
    size_t count(size_t piece) const { return count(piece, total); }

    size_t total, length;
  };
  // The steps of one piece: up to the leader, across to other hosts (leaders only), and down to the
  // members.
  struct Stages {
    std::function<void(size_t piece)> up, down;
    std::function<void(size_t piece, OverlapHook)> across;
  };
  void in_pieces(size_t pieces, const Stages& stages);
  // Returns a hook that runs steps on this host while the transport works.
  OverlapHook overlap(std::function<void()> on_host);

  // Two pieces are under way at a time, so there are two buffers for each direction.
  std::byte* scratch_of(Scratch which, size_t piece, size_t bytes) {
    return scratch(static_cast<Scratch>(which + piece % 2), bytes);
  }

  // This host's end of a block that goes from one rank to another.
  struct RemoteBlock {
    int host = -1;         // the other host; -1: there is no block
    int local_index = 0;   // index of the member here that sends or receives it
    void* data = nullptr;  // its address in that member's buffer, if the member is this rank
    size_t bytes = 0;
  };
  struct BlockPair {
    RemoteBlock out, in;
  };
  // In each step every host sends at most one block and receives at most one. `longest` is the length of the
  // longest block of all hosts, in bytes.
  void exchange_pipelined(const std::vector<BlockPair>& steps, size_t longest);

  // Steps on this host. `rows` holds one row of each member and is used on the leader only.
  void gather_rows(const void* row, void* rows, size_t bytes);
  void scatter_rows(const void* rows, void* row, size_t bytes);
  void gather_on_host(void* all, const std::vector<size_t>& bytes);
  void spread_on_host(const void* from, void* to, size_t bytes, int local_index);

  void run_local(Call call) { run_on_host(context_.local, std::move(call), deadline_); }
  void pass(int from, int to, void* data, size_t bytes);

  const Deadline deadline_;
};

}  // namespace dsc
