// The data movement of a collective operation: which elements move from which send buffer to which recv
// buffer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "control/call.hpp"
#include "control/recorder.hpp"
#include "dtype/reduce.hpp"

namespace dsc {

enum class Pattern : uint8_t {
  kNothing,
  kAllReduce,
  kReduce,
  kReduceScatter,
  kBroadcast,
  kScatter,
  kGather,
  kAllGather,
  kAllToAll
};

Pattern pattern_of(OpKind kind) noexcept;

constexpr bool reduces(Pattern pattern) noexcept {
  return pattern == Pattern::kAllReduce || pattern == Pattern::kReduce || pattern == Pattern::kReduceScatter;
}
// Returns true if a sender sends a different block to each receiver.
constexpr bool divides(Pattern pattern) noexcept {
  return pattern == Pattern::kReduceScatter || pattern == Pattern::kScatter || pattern == Pattern::kAllToAll;
}
// Returns true if a receiver gets a block from each sender.
constexpr bool collects(Pattern pattern) noexcept {
  return pattern == Pattern::kGather || pattern == Pattern::kAllGather || pattern == Pattern::kAllToAll;
}
constexpr bool only_root_sends(Pattern pattern) noexcept {
  return pattern == Pattern::kBroadcast || pattern == Pattern::kScatter;
}
constexpr bool only_root_receives(Pattern pattern) noexcept {
  return pattern == Pattern::kReduce || pattern == Pattern::kGather;
}

// The positions of a block's elements relative to its first element. The block consists of rows of `length`
// elements, and the starts of two consecutive rows are `stride` elements apart. A contiguous block is a
// single row.
struct Rows {
  size_t length = SIZE_MAX;
  size_t stride = 0;

  size_t at(size_t element) const noexcept {
    return element < length ? element : element / length * stride + element % length;
  }
  // Returns the number of elements from `element` to the end of its row.
  size_t rest(size_t element) const noexcept {
    return length - (element < length ? element : element % length);
  }
};

// Elements that move from one member to another.
struct Block {
  size_t from = 0;  // start of the block in the sender's send buffer
  size_t to = 0;    // start of the block in the receiver's recv buffer
  size_t count = 0;
  Rows from_rows = {};
  Rows to_rows = {};
};

// Calls `move(from, to, elements)` for each part of a block that is contiguous in both buffers, beginning
// with element `first`. `from` and `to` are positions in the buffers.
template <typename Move>
void for_each_run(const Block& block, size_t first, size_t count, const Move& move) {
  for (const size_t end = first + count; first < end;) {
    const size_t run = std::min({end - first, block.from_rows.rest(first), block.to_rows.rest(first)});
    move(block.from + block.from_rows.at(first), block.to + block.to_rows.at(first), run);
    first += run;
  }
}

struct Transfer {
  Transfer(const Call& call, int rank, int size) noexcept;

  const std::byte* send_at(size_t element) const noexcept { return send + element * element_bytes; }
  std::byte* recv_at(size_t element) const noexcept { return recv + element * element_bytes; }
  size_t bytes_of(size_t elements) const noexcept { return elements * element_bytes; }

  bool reduces() const noexcept { return dsc::reduces(pattern); }
  // Returns true if a sender sends different elements to each receiver, and false if all receivers get the
  // same ones.
  bool is_divided() const noexcept { return parts > 1; }
  bool sends(int member) const noexcept { return !only_root_sends(pattern) || member == root; }
  bool receives(int member) const noexcept { return !only_root_receives(pattern) || member == root; }

  // incoming() returns both ends of a block. outgoing() does not set the end at the receiver, and
  // received_from() does not set the end at the sender.
  Block outgoing(int receiver) const noexcept;
  Block received_from(int sender) const noexcept;
  Block incoming(int sender) const noexcept;
  size_t send_elements(int member) const noexcept;
  // Returns how many elements of a member's send buffer this rank may read. A peer that sends columns of
  // another matrix than this rank expects must not make this rank read beyond the peer's memory.
  size_t elements_read_of(int member) const noexcept;

  // If blocks have different lengths, only the sender knows these values until calls are compared.
  struct Sender {
    size_t total;  // number of elements in its send buffer
    size_t from;   // start of the block for this rank in that buffer
  };
  void learn(std::vector<Sender> shown, size_t longest_block) noexcept;
  bool knows_all() const noexcept { return longest != kUnknown; }

  static constexpr size_t kUnknown = ~size_t{0};

  size_t send_extent() const noexcept;
  // Returns how much memory the operation reads and writes, that of all members together.
  size_t bytes_of_all() const noexcept;

  Pattern pattern;
  int rank;
  int size;
  int root;
  size_t element_bytes;
  size_t count;       // number of elements in a block, if all blocks are equally long
  size_t longest;     // number of elements in the longest block of all members
  size_t send_bytes;  // sizes of this rank's send and recv buffers; 0 for a buffer that it lacks
  size_t recv_bytes;
  size_t parts;  // number of ranks if each receiver gets a different block, otherwise 1
  const std::byte* send;
  std::byte* recv;
  const BlockList* send_blocks;  // blocks of the call; null if all have `count` elements
  const BlockList* recv_blocks;
  const Columns* send_columns;  // columns of the call; null if blocks are contiguous
  const Columns* recv_columns;
  size_t rows_of_lists;  // copy of ColumnBlocks::rows
  std::vector<Sender> senders;
  ReduceSpec reduce;
};

// Returns the record of a call for the flight recorder.
RecordedCall recorded_call(const Call& call, uint64_t sequence, size_t send_bytes, size_t recv_bytes,
                           int32_t timeout_ms) noexcept;

}  // namespace dsc
