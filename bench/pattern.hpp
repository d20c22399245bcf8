// The data of each operation: its buffers, their contents before the operation, and the contents that they
// must have after it.
#pragma once

#include <cstddef>
#include <string>

namespace bench {

enum class Op {
  all_reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  all_to_all,
  reduce,
  gather,
  scatter,
  barrier,
  send_recv,
  // Mappings of a matrix. Each rank has some columns or, if the name contains "sequence", some rows.
  gather_columns,
  reduce_scatter_columns,
  sequence_to_hidden,
  hidden_to_sequence
};

inline constexpr int root = 0;  // root of broadcast, reduce, gather and scatter

// Throws std::invalid_argument if the name is not an operation.
Op parse_op(const std::string& name);

// Numbers of elements of one rank's buffers. The size of a measurement, `bytes`, is that of the largest
// buffer of any rank.
struct Shape {
  Shape(Op op, size_t bytes, int rank, int ranks);

  size_t count;  // the argument of the call: per rank if the operation has parts, otherwise all elements
  size_t in;     // 0: this rank has no such buffer
  size_t out;
  bool in_place;  // `out` is the same buffer as `in`
};

// The whole matrix of a mapping, in row-major order. Each rank has `width` columns, or `rows / ranks` rows.
struct Matrix {
  Matrix(size_t count, int ranks);

  size_t rows, columns, width;
};

// Returns a small whole number, so that every sum is exact in f32, in any order.
float fill_value(int rank, size_t i);
void fill(float* buffer, size_t count, int rank);

// Returns the value that out[i] must have on this rank after the operation.
float expected(Op op, int rank, int ranks, size_t count, size_t i);

}  // namespace bench
