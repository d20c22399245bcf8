// A lower bound for every all-reduce: each rank reads and writes its own buffer once, in place, without
// communication. Plain and non-temporal stores are both timed, and the faster one counts. For a mapping, each
// rank moves as many bytes as the mapping does, but only inside its own memory. An all-reduce needs the data
// of all ranks, so a call ends when all ranks are done. With more ranks than cores, the ranks take turns.
#include <cstring>

#include "floor_kernel.hpp"
#include "harness.hpp"

namespace {

using bench::Matrix;
using bench::Op;

// Fills every rank's columns of the whole matrix with this rank's columns.
void gather_own(const bench::Call& c) {
  const Matrix m(c.count, c.ranks);
  for (size_t row = 0; row < m.rows; ++row)
    for (size_t first = 0; first < m.columns; first += m.width)
      std::memcpy(c.out + row * m.columns + first, c.in + row * m.width, m.width * sizeof(float));
}

// Adds up the blocks of columns in this rank's own matrix.
void sum_own(const bench::Call& c) {
  const Matrix m(c.count, c.ranks);
  for (size_t row = 0; row < m.rows; ++row) {
    float* const to = c.out + row * m.width;
    const float* const from = c.in + row * m.columns;
    std::memcpy(to, from, m.width * sizeof(float));
    for (size_t first = m.width; first < m.columns; first += m.width)
      for (size_t i = 0; i < m.width; ++i) to[i] += from[first + i];
  }
}

class FloorEngine : public bench::Engine {
 public:
  int rank() const override { return rank_; }
  std::vector<std::string> variants(Op op) const override {
    if (op != Op::all_reduce) return {"plain"};
    return {"plain", "non-temporal"};
  }
  void call(const bench::Call& c) override {
    if (c.op == Op::all_reduce) return bench::scale_in_place(c.out, c.count, factor, c.variant == 1);
    if (c.op == Op::gather_columns) return gather_own(c);
    if (c.op == Op::reduce_scatter_columns) return sum_own(c);
    std::memcpy(c.out, c.in, c.count * sizeof(float));
  }
  bool ends_together() const override { return true; }
  float expected(const bench::Call& c, size_t i) const override {
    if (c.op == Op::all_reduce)  // rank r is filled as rank 0 plus r, and broadcast expects rank 0's
      return factor *
             (bench::expected(Op::broadcast, c.rank, c.ranks, c.count, i) + static_cast<float>(c.rank));
    const Matrix m(c.count, c.ranks);
    if (c.op == Op::gather_columns)
      return bench::fill_value(c.rank, i / m.columns * m.width + i % m.columns % m.width);
    if (c.op != Op::reduce_scatter_columns) return bench::fill_value(c.rank, i);
    float sum = 0;
    for (size_t first = 0; first < m.columns; first += m.width)
      sum += bench::fill_value(c.rank, i / m.width * m.columns + first + i % m.width);
    return sum;
  }

 private:
  static constexpr float factor = 2.0f;
  int rank_ = bench::rank_from_environment();
};

void body(const bench::Job& job) {
  FloorEngine engine;
  bench::measure(engine, job);
}

}  // namespace

int main(int argc, char** argv) { return bench::run_driver(argc, argv, body); }
