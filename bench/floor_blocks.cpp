#include "floor_blocks.hpp"

namespace bench {
namespace {

Block contiguous(size_t count, size_t from_offset, size_t to_offset) {
  return {.rows = 1, .width = count, .from_offset = from_offset, .to_offset = to_offset};
}

Block block_of_mapping(const Call& call, size_t sender, size_t receiver) {
  const Matrix m(call.count, call.ranks);
  const size_t each = m.rows / static_cast<size_t>(call.ranks);  // rows of one rank, if it has whole rows
  switch (call.op) {
    case Op::gather_columns:
      return {m.rows, m.width, 0, m.width, sender * m.width, m.columns};
    case Op::reduce_scatter_columns:
      return {m.rows, m.width, receiver * m.width, m.columns, 0, m.width};
    case Op::sequence_to_hidden:
      return {each, m.width, receiver * m.width, m.columns, sender * each * m.width, m.width};
    case Op::hidden_to_sequence:
      return {each, m.width, receiver * each * m.width, m.width, sender * m.width, m.columns};
    default:
      return {};
  }
}

}  // namespace

bool is_sum(Op op) {
  return op == Op::all_reduce || op == Op::reduce || op == Op::reduce_scatter ||
         op == Op::reduce_scatter_columns;
}

bool sends(Op op, int rank) {
  if (op == Op::barrier) return false;
  return rank == root || (op != Op::broadcast && op != Op::scatter);
}

Block block_between(const Call& call, int from, int to) {
  const size_t sender = static_cast<size_t>(from), receiver = static_cast<size_t>(to);
  const size_t count = call.count;
  switch (call.op) {
    case Op::all_reduce:
      return contiguous(count, 0, 0);
    case Op::reduce:
      return to == root ? contiguous(count, 0, 0) : Block{};
    case Op::broadcast:
      return from == root && to != root ? contiguous(count, 0, 0) : Block{};
    case Op::all_gather:
      return contiguous(count, 0, sender * count);
    case Op::gather:
      return to == root ? contiguous(count, 0, sender * count) : Block{};
    case Op::scatter:
      return from == root ? contiguous(count, receiver * count, 0) : Block{};
    case Op::reduce_scatter:
      return contiguous(count, receiver * count, 0);
    case Op::all_to_all:
      return contiguous(count, receiver * count, sender * count);
    case Op::send_recv:
    case Op::barrier:
      return {};
    default:
      return block_of_mapping(call, sender, receiver);
  }
}

}  // namespace bench
