// All-to-all between hosts. All blocks have the same length, or each pair of ranks has its own length.
//
// Small blocks go hierarchically: each leader packs the blocks of its host, so that only one message goes
// from host to host. Large blocks go directly from rank to rank if all ranks can connect; otherwise they go
// through the leaders, one after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.hpp"
#include "control/call.hpp"
#include "engine_hier/hier_steps.hpp"

namespace dsc {

class AllToAll : private HierSteps {
 public:
  AllToAll(HierContext& context, const Call& call, Deadline deadline) noexcept;

  // Runs the operation to its end. Throws MISMATCH if a rank does not send what another rank expects, and the
  // errors of the host engine and the transport.
  void run();

 private:
  // Sizes in bytes that all ranks know.
  struct Sizes {
    size_t longest = 0;    // of the longest block
    size_t at_leader = 0;  // the most that any leader sends or receives for all ranks of its host
  };
  Sizes even_sizes() const noexcept;
  Sizes compare_lengths();

  bool is_even() const noexcept { return !call_.send_blocks; }
  TransportBlock own_block(const std::byte* data, const BlockList* list, int rank) const noexcept;
  TransportBlock own_out(int rank) const noexcept;
  TransportBlock own_in(int rank) const noexcept;

  // Lengths in bytes of the blocks of a rank of this host. They are known after learn_lengths().
  void learn_lengths();
  size_t out_bytes(size_t member, int receiver) const noexcept;
  size_t in_bytes(size_t member, int sender) const noexcept;

  void keep_sent();
  void exchange_directly();
  void exchange_on_host();
  void exchange_at_once();
  void exchange_in_steps(size_t longest);

  // At the leader: the rows of the members, one after another, with what they send or what they receive.
  using Lengths = size_t (AllToAll::*)(size_t member, int rank) const noexcept;
  std::vector<size_t> row_bytes(Lengths lengths) const;
  std::vector<TransportBlock> host_blocks(Scratch where, Lengths lengths, size_t total);
  void move_rows(std::byte* rows, const std::vector<size_t>& bytes, bool to_leader);
  void pack_for_hosts(std::byte* to, const std::byte* rows) const;
  void unpack_from_hosts(std::byte* rows, const std::byte* from) const;

  const size_t element_bytes_;
  const std::byte* from_;  // what this rank sends
  // A copy of from_; in place, received blocks would overwrite blocks that are not sent yet.
  std::vector<std::byte> kept_;
  std::vector<uint64_t> lists_;  // for each member: elements that it sends to and receives from all ranks
};

}  // namespace dsc
