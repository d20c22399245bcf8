#include "comm/transfer.hpp"

#include <algorithm>

#include "dsc/types.h"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

size_t longest_of(const Call& call) noexcept {
  if (call.send_blocks && call.recv_blocks) return Transfer::kUnknown;
  const BlockList* blocks = call.send_blocks ? call.send_blocks.get() : call.recv_blocks.get();
  return blocks ? *std::max_element(blocks->lengths.begin(), blocks->lengths.end()) : call.count;
}

// Computes the start and the rows of a block that is a member's columns of a matrix.
void locate_in(const Columns& columns, size_t member, size_t members, size_t& start, Rows& rows) noexcept {
  start = columns.start_of(member);
  rows = {columns.width_of(member), columns.all(members)};
}

}  // namespace

Pattern pattern_of(OpKind kind) noexcept {
  switch (kind) {
    case OpKind::kAllReduce:
      return Pattern::kAllReduce;
    case OpKind::kReduce:
      return Pattern::kReduce;
    case OpKind::kReduceScatter:
    case OpKind::kReduceScatterV:
      return Pattern::kReduceScatter;
    case OpKind::kBroadcast:
      return Pattern::kBroadcast;
    case OpKind::kScatter:
      return Pattern::kScatter;
    case OpKind::kGather:
      return Pattern::kGather;
    case OpKind::kAllGather:
    case OpKind::kAllGatherV:
    case OpKind::kSplit:
    case OpKind::kCreateGroup:
    case OpKind::kMemAlloc:
    case OpKind::kVerify:
    case OpKind::kPipeRun:
    case OpKind::kBind:
    case OpKind::kMemRegister:
      return Pattern::kAllGather;
    case OpKind::kAllToAll:
    case OpKind::kAllToAllV:
      return Pattern::kAllToAll;
    default:
      return Pattern::kNothing;
  }
}

Transfer::Transfer(const Call& call, int rank_in, int size_in) noexcept
    : pattern(longest_of(call) == 0 ? Pattern::kNothing : pattern_of(call.kind)),
      rank(rank_in),
      size(size_in),
      root(call.root),
      element_bytes(dtype_bytes(call.dtype)),
      count(call.count),
      longest(longest_of(call)),
      send_bytes(0),
      recv_bytes(0),
      parts(divides(pattern) ? static_cast<size_t>(size_in) : 1),
      send(static_cast<const std::byte*>(call.send)),
      recv(static_cast<std::byte*>(call.recv)),
      send_blocks(call.send_blocks.get()),
      recv_blocks(call.recv_blocks.get()),
      send_columns(call.columns && call.columns->send ? &call.columns->send : nullptr),
      recv_columns(call.columns && call.columns->recv ? &call.columns->recv : nullptr),
      rows_of_lists(call.columns ? call.columns->rows : 0),
      reduce{call.dtype, call.op, call.op == DSC_OP_AVG ? size_in : 1, call.prescale, 0, call.user.get()} {
  if (pattern == Pattern::kNothing) return;
  if (sends(rank)) send_bytes = bytes_of(send_columns ? send_extent() : send_elements(rank));
  if (!receives(rank)) return;
  if (collects(pattern))
    recv_bytes = bytes_of(recv_blocks ? recv_blocks->total() : count * static_cast<size_t>(size));
  else
    recv_bytes = bytes_of(incoming(rank).count);
}

size_t Transfer::send_elements(int member) const noexcept {
  const auto at = static_cast<size_t>(member);
  if (send_blocks) return recv_blocks && member != rank ? senders[at].total : send_blocks->total();
  return recv_blocks ? recv_blocks->lengths[at] : count * parts;
}

size_t Transfer::elements_read_of(int member) const noexcept {
  const size_t elements = send_elements(member);
  const Block block = send_columns ? incoming(member) : Block{};
  return block.count == 0 ? elements
                          : std::max(elements, block.from + block.from_rows.at(block.count - 1) + 1);
}

// Returns the number of elements up to the last one that is sent.
size_t Transfer::send_extent() const noexcept {
  size_t extent = 0;
  for (int receiver = 0; receiver < size; ++receiver) {
    const Block block = outgoing(receiver);
    if (block.count > 0) extent = std::max(extent, block.from + block.from_rows.at(block.count - 1) + 1);
  }
  return extent;
}

size_t Transfer::bytes_of_all() const noexcept {
  const auto members = static_cast<size_t>(size);
  const size_t senders = only_root_sends(pattern) ? 1 : members;
  const size_t receivers = only_root_receives(pattern)      ? 1
                           : pattern == Pattern::kBroadcast ? members - 1  // the root has the data already
                                                            : members;
  return bytes_of(longest) * (senders * parts + receivers * (collects(pattern) ? members : 1));
}

Block Transfer::outgoing(int receiver) const noexcept {
  const auto at = static_cast<size_t>(receiver);
  const auto own = static_cast<size_t>(rank);
  Block block;
  if (divides(pattern)) {
    block.from = send_blocks ? send_blocks->starts[at] : at * count;
    block.count = send_blocks ? send_blocks->lengths[at] : count;
    if (send_columns) locate_in(*send_columns, at, static_cast<size_t>(size), block.from, block.from_rows);
  } else {
    block.count = recv_blocks ? recv_blocks->lengths[own] : count;
  }
  return block;
}

Block Transfer::received_from(int sender) const noexcept {
  const auto at = static_cast<size_t>(sender);
  Block block;
  if (collects(pattern)) {
    block.to = recv_blocks ? recv_blocks->starts[at] : at * count;
    block.count = recv_blocks ? recv_blocks->lengths[at] : count;
    if (recv_columns) locate_in(*recv_columns, at, static_cast<size_t>(size), block.to, block.to_rows);
  } else {
    block.count = send_blocks ? send_blocks->lengths[static_cast<size_t>(rank)] : count;
  }
  return block;
}

Block Transfer::incoming(int sender) const noexcept {
  const auto own = static_cast<size_t>(rank);
  Block block = received_from(sender);
  if (!divides(pattern)) return block;
  if (!send_blocks)
    block.from = own * count;
  else
    block.from =
        recv_blocks && sender != rank ? senders[static_cast<size_t>(sender)].from : send_blocks->starts[own];
  if (rows_of_lists > 0 && sender != rank) {
    block.from /= rows_of_lists;
    block.from_rows = {block.count / rows_of_lists,
                       senders[static_cast<size_t>(sender)].total / rows_of_lists};
  } else if (send_columns) {
    locate_in(*send_columns, own, static_cast<size_t>(size), block.from, block.from_rows);
  }
  return block;
}

void Transfer::learn(std::vector<Sender> shown, size_t longest_block) noexcept {
  senders = std::move(shown);
  longest = longest_block;
  if (longest == 0) pattern = Pattern::kNothing;
}

RecordedCall recorded_call(const Call& call, uint64_t sequence, size_t send_bytes, size_t recv_bytes,
                           int32_t timeout_ms) noexcept {
  RecordedCall recorded;
  recorded.kind = call.kind;
  recorded.dtype = call.dtype;
  recorded.op = call.op;
  recorded.root = call.root;
  recorded.sequence = has_no_sequence(call.kind) ? 0 : sequence;
  recorded.send_bytes = send_bytes;
  recorded.recv_bytes = recv_bytes;
  recorded.timeout_ms = timeout_ms;
  return recorded;
}

}  // namespace dsc
