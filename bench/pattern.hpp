// What each operation moves: its buffers, what stands in them before, and what must stand in them after.
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
  // Mappings of a matrix of which each rank has some columns, or some rows where the name says sequence.
  gather_columns,
  reduce_scatter_columns,
  sequence_to_hidden,
  hidden_to_sequence
};

inline constexpr int root = 0;  // of broadcast, reduce, gather and scatter

// Throws std::invalid_argument for a name that is no operation.
Op parse_op(const std::string& name);

// Elements of one rank's buffers. `bytes` of a measurement is the largest buffer that any rank has.
struct Shape {
  Shape(Op op, size_t bytes, int rank, int ranks);

  size_t count;  // as the call wants it: per rank where there are parts, else all
  size_t in;     // 0: this rank has no such buffer
  size_t out;
  bool in_place;  // out is in
};

// The whole matrix of a mapping, in row-major order. Each rank has `width` columns or `rows / ranks` rows.
struct Matrix {
  Matrix(size_t count, int ranks);

  size_t rows, columns, width;
};

// Small whole numbers: every sum is exact in f32, in any order.
float fill_value(int rank, size_t i);
void fill(float* buffer, size_t count, int rank);

// What out[i] must be on this rank after the operation.
float expected(Op op, int rank, int ranks, size_t count, size_t i);

}  // namespace bench
