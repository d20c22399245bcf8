#include "pattern.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <stdexcept>

namespace bench {
namespace {

constexpr int period = 7;
constexpr size_t most_columns = 4096;  // a typical hidden size of a model

struct OpName {
  const char* name;
  Op op;
};
constexpr OpName op_names[] = {{"all_reduce", Op::all_reduce},
                               {"broadcast", Op::broadcast},
                               {"all_gather", Op::all_gather},
                               {"reduce_scatter", Op::reduce_scatter},
                               {"all_to_all", Op::all_to_all},
                               {"reduce", Op::reduce},
                               {"gather", Op::gather},
                               {"scatter", Op::scatter},
                               {"barrier", Op::barrier},
                               {"send_recv", Op::send_recv},
                               {"gather_columns", Op::gather_columns},
                               {"reduce_scatter_columns", Op::reduce_scatter_columns},
                               {"sequence_to_hidden", Op::sequence_to_hidden},
                               {"hidden_to_sequence", Op::hidden_to_sequence}};

bool is_mapping(Op op) {
  return op == Op::gather_columns || op == Op::reduce_scatter_columns || op == Op::sequence_to_hidden ||
         op == Op::hidden_to_sequence;
}

bool has_parts(Op op) {
  return is_mapping(op) || op == Op::all_gather || op == Op::reduce_scatter || op == Op::all_to_all ||
         op == Op::gather || op == Op::scatter;
}

}  // namespace

Op parse_op(const std::string& name) {
  for (const OpName& known : op_names)
    if (name == known.name) return known.op;
  throw std::invalid_argument("unknown operation " + name);
}

Shape::Shape(Op op, size_t bytes, int rank, int ranks)
    : in_place(op == Op::all_reduce || op == Op::reduce || op == Op::broadcast || op == Op::barrier) {
  const size_t parts = has_parts(op) ? static_cast<size_t>(ranks) : 1;
  count = std::max<size_t>(1, bytes / sizeof(float) / parts);
  const size_t all = count * parts;
  const bool is_root = rank == root;
  const bool exchanges = op == Op::sequence_to_hidden || op == Op::hidden_to_sequence;
  const bool takes_part = op == Op::all_gather || op == Op::gather || op == Op::gather_columns || exchanges;
  in = takes_part ? count : op == Op::scatter && !is_root ? 0 : all;
  out = op == Op::reduce_scatter || op == Op::scatter || op == Op::reduce_scatter_columns || exchanges ? count
        : (op == Op::reduce || op == Op::gather) && !is_root                                           ? 0
                                                                                                       : all;
}

Matrix::Matrix(size_t count, int ranks) {
  const size_t n = static_cast<size_t>(ranks), all = count * n;
  columns = std::min(most_columns, all / n / n * n);  // at least one row and one column for each rank
  rows = all / columns;
  width = columns / n;
}

float fill_value(int rank, size_t i) { return static_cast<float>(i % period) + static_cast<float>(rank); }

// Copies a small tile repeatedly, because a plain loop with i % 7 would take longer than the measured
// operation.
void fill(float* buffer, size_t count, int rank) {
  float tile[period * 256];
  for (size_t i = 0; i < std::size(tile); ++i) tile[i] = fill_value(rank, i);
  for (size_t i = 0; i < count; i += std::size(tile))
    std::memcpy(buffer + i, tile, std::min(std::size(tile), count - i) * sizeof(float));
}

namespace {

float sum_of_ranks(int ranks, size_t index) {
  return static_cast<float>(ranks) * fill_value(0, index) + static_cast<float>(ranks * (ranks - 1) / 2);
}

float expected_of_mapping(Op op, int rank, int ranks, size_t count, size_t i) {
  const Matrix m(count, ranks);
  const size_t n = static_cast<size_t>(ranks), own = static_cast<size_t>(rank), each = m.rows / n;
  // Whether the output consists of whole rows.
  const bool whole_rows = op == Op::gather_columns || op == Op::hidden_to_sequence;
  const size_t row = i / (whole_rows ? m.columns : m.width), column = i % (whole_rows ? m.columns : m.width);
  const size_t owner = column / m.width;
  if (op == Op::gather_columns) return fill_value(static_cast<int>(owner), row * m.width + column % m.width);
  if (op == Op::reduce_scatter_columns) return sum_of_ranks(ranks, row * m.columns + own * m.width + column);
  if (op == Op::sequence_to_hidden)
    return fill_value(static_cast<int>(row / each), row % each * m.columns + own * m.width + column);
  return fill_value(static_cast<int>(owner), (own * each + row) * m.width + column % m.width);
}

}  // namespace

float expected(Op op, int rank, int ranks, size_t count, size_t i) {
  const auto sum = [ranks](size_t index) { return sum_of_ranks(ranks, index); };
  const size_t mine = static_cast<size_t>(rank) * count;  // start of this rank's part
  const int from = static_cast<int>(i / count);           // the rank whose part contains element i
  switch (op) {
    case Op::all_reduce:
    case Op::reduce:
      return sum(i);
    case Op::reduce_scatter:
      return sum(mine + i);
    case Op::broadcast:
      return fill_value(root, i);
    case Op::scatter:
      return fill_value(root, mine + i);
    case Op::all_gather:
    case Op::gather:
      return fill_value(from, i % count);
    case Op::all_to_all:
      return fill_value(from, mine + i % count);
    case Op::send_recv:
      return fill_value(rank & ~1, i);
    case Op::barrier:
      break;
    default:
      return expected_of_mapping(op, rank, ranks, count, i);
  }
  return 0;
}

}  // namespace bench
