// Moves the data of one operation: it is gathered or combined on each host, exchanged between the leaders,
// and spread on each host. The ranks have compared their calls before, unless the data is inline.
//
// Data goes in pieces: while one travels between hosts, the one before is spread and the next one gathered.
// Where no host has more than one rank there is nothing to gather or spread, and data travels whole.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <vector>

#include "base/clock.hpp"
#include "control/call.hpp"
#include "dtype/reduce.hpp"
#include "engine_hier/hier_context.hpp"
#include "engine_hier/host_outcome.hpp"
#include "transport/transport_group.hpp"

namespace dsc {

// Copies bytes unless both ends are the same. The pointers may be null if there are no bytes.
inline void copy_bytes(void* to, const void* from, size_t bytes) noexcept {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

// Up to this many bytes at a leader, packing all blocks into one exchange costs less than one step per
// block.
inline constexpr size_t kAtOnceBytes = size_t{1} << 18;

class HierTransfer {
 public:
  HierTransfer(HierContext& context, const Call& call, Deadline deadline) noexcept
      : context_(context), layout_(context.layout), call_(call), deadline_(deadline) {}

  // Runs the operation to its end. Throws what the host engine and the transport throw.
  void run();

  bool one_rank_per_host() const noexcept;

  // Throws UNSUPPORTED for calls that do not run between hosts. Called before other ranks learn of the
  // call.
  static void check(const Call& call);

  // Inline data replaces run(): it travels with the comparison of calls and is used only if they are equal.
  // With several ranks per host, give_part() writes what a member sends to its leader, take_inline()
  // computes the `result` there, and take_result() takes what the leader has sent back.
  bool is_inline() const;
  void give_part(std::byte* to) const;
  std::vector<TransportBlock> inline_blocks(std::span<const std::byte* const> parts);
  void take_inline(std::span<const TransportGroup::Met> met, std::byte* result);
  void take_result(const std::byte* result);

 private:
  void all_reduce();
  void reduce();
  void reduce_scatter();
  void broadcast();
  void all_gather();
  void exchange_blocks();

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

  // Scratch memory of this rank, which later operations reuse. Two pieces are under way at a time, so there
  // are two buffers for each direction.
  enum Scratch { kOwn, kUp, kUpOther, kDown, kDownOther };
  std::byte* scratch(Scratch which, size_t bytes);
  std::byte* scratch_of(Scratch which, size_t piece, size_t bytes);

  // 8- and 16-bit floats are summed in f32 and rounded once.
  bool widens() const noexcept;
  int32_t work_type() const noexcept;
  bool sums_directly() const noexcept { return one_rank_per_host() && !widens(); }
  size_t sum_piece() const noexcept;  // elements
  ReduceSpec between_hosts() const noexcept;
  void convert(void* to, int32_t to_type, const void* from, int32_t from_type, size_t count);
  void combine_on_host(const void* values, void* sum, size_t count);
  void combine_widened(const void* values, void* sum, size_t count);
  void hand_out(const void* part, const std::vector<size_t>& elements, void* result);

  // This host's end of a block that goes from one rank to another.
  struct RemoteBlock {
    int host = -1;        // the other host; -1: there is no block
    int local_index = 0;  // index of the member here that sends or receives it
    size_t at = 0;        // offset in that member's buffer, in bytes
  };
  struct BlockPair {
    RemoteBlock out, in;
  };
  void gather_at_once();
  void scatter_at_once();
  void exchange_at_once();
  bool all_can(bool can);
  void broadcast_directly();
  void all_gather_directly();
  void exchange_directly();
  void pass_on_host(size_t block);
  void gather_in_steps();
  void scatter_in_steps();
  void exchange_in_steps();
  void exchange_pipelined(const std::byte* from, const std::vector<BlockPair>& steps);
  void exchange_on_host(const std::byte* from);

  // Steps on this host. `rows` holds one row of each member and is used on the leader only.
  void gather_rows(const void* row, void* rows, size_t bytes);
  void scatter_rows(const void* rows, void* row, size_t bytes);
  void gather_on_host(void* all, const std::vector<size_t>& bytes);
  void spread_on_host(const void* from, void* to, size_t bytes, int local_index);

  // Returns the inline data of a host; throws PROTOCOL if its length is not `bytes`.
  static const std::byte* expect(const TransportGroup::Met& met, size_t bytes);
  bool is_small() const;
  size_t part_bytes(int from) const;
  size_t parts_bytes(std::span<const int32_t> ranks) const;
  TransportBlock host_part(std::span<const std::byte* const> parts);
  void combine_hosts(std::span<const TransportGroup::Met> met, std::byte* result);

  TransportBlock block_for(int host, const std::vector<size_t>& bytes) const;
  void combine_inline(std::span<const TransportGroup::Met> met, const std::byte* mine, size_t bytes);

  std::vector<size_t> lengths() const;  // bytes of each rank's block
  const std::byte* sent(size_t byte) const { return static_cast<const std::byte*>(call_.send) + byte; }
  std::byte* received(size_t byte) const { return static_cast<std::byte*>(call_.recv) + byte; }
  void run_local(Call call) { run_on_host(context_.local, std::move(call), deadline_); }
  void pass(int from, int to, void* data, size_t bytes);

  HierContext& context_;
  const HierLayout& layout_;
  const Call& call_;
  const Deadline deadline_;
};

}  // namespace dsc
