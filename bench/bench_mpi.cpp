// Open MPI and MPICH: this source is compiled once with each.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstring>
#include <stdexcept>
#include <vector>

#include "harness.hpp"

namespace {

void ok(int result) {
  if (result != MPI_SUCCESS)
    throw std::runtime_error("an MPI call failed with code " + std::to_string(result));
}

class MpiEngine : public bench::Engine {
 public:
  MpiEngine() { ok(MPI_Comm_rank(MPI_COMM_WORLD, &rank_)); }

  int rank() const override { return rank_; }

  void call(const bench::Call& c) override {
    const int count = static_cast<int>(c.count);
    MPI_Comm world = MPI_COMM_WORLD;
    switch (c.op) {
      case bench::Op::all_reduce:
        return ok(MPI_Allreduce(MPI_IN_PLACE, c.out, count, MPI_FLOAT, MPI_SUM, world));
      case bench::Op::broadcast:
        return ok(MPI_Bcast(c.out, count, MPI_FLOAT, bench::root, world));
      case bench::Op::all_gather:
        return ok(MPI_Allgather(c.in, count, MPI_FLOAT, c.out, count, MPI_FLOAT, world));
      case bench::Op::reduce_scatter:
        return ok(MPI_Reduce_scatter_block(c.in, c.out, count, MPI_FLOAT, MPI_SUM, world));
      case bench::Op::all_to_all:
        return ok(MPI_Alltoall(c.in, count, MPI_FLOAT, c.out, count, MPI_FLOAT, world));
      case bench::Op::reduce:
        return ok(
            MPI_Reduce(c.out ? MPI_IN_PLACE : c.in, c.out, count, MPI_FLOAT, MPI_SUM, bench::root, world));
      case bench::Op::gather:
        return ok(MPI_Gather(c.in, count, MPI_FLOAT, c.out, count, MPI_FLOAT, bench::root, world));
      case bench::Op::scatter:
        return ok(MPI_Scatter(c.in, count, MPI_FLOAT, c.out, count, MPI_FLOAT, bench::root, world));
      case bench::Op::barrier:
        return ok(MPI_Barrier(world));
      case bench::Op::send_recv:
        return round_trip(c, count);
      case bench::Op::gather_columns:
        return ok(MPI_Allgather(c.in, count, MPI_FLOAT, c.out, 1, columns_, world));
      case bench::Op::reduce_scatter_columns:
        pack_columns(c);
        return ok(MPI_Reduce_scatter_block(packed_.data(), c.out, count, MPI_FLOAT, MPI_SUM, world));
      case bench::Op::sequence_to_hidden:
        return ok(MPI_Alltoall(c.in, 1, columns_, c.out, count / c.ranks, MPI_FLOAT, world));
      case bench::Op::hidden_to_sequence:
        return ok(MPI_Alltoall(c.in, count / c.ranks, MPI_FLOAT, c.out, 1, columns_, world));
    }
  }

  // Describes one rank's columns of a matrix as a type whose next element is the next rank's columns.
  void prepare(const bench::Call& c) override {
    const bool gathers = c.op == bench::Op::gather_columns;
    if (c.op == bench::Op::reduce_scatter_columns) packed_.resize(c.count * static_cast<size_t>(c.ranks));
    if (!gathers && c.op != bench::Op::sequence_to_hidden && c.op != bench::Op::hidden_to_sequence) return;
    const bench::Matrix m(c.count, c.ranks);
    const size_t rows = gathers ? m.rows : m.rows / static_cast<size_t>(c.ranks);
    MPI_Datatype vector;
    ok(MPI_Type_vector(static_cast<int>(rows), static_cast<int>(m.width), static_cast<int>(m.columns),
                       MPI_FLOAT, &vector));
    ok(MPI_Type_create_resized(vector, 0, static_cast<MPI_Aint>(m.width * sizeof(float)), &columns_));
    ok(MPI_Type_commit(&columns_));
    ok(MPI_Type_free(&vector));
  }

 private:
  // MPI cannot sum derived types, so the columns are packed first.
  void pack_columns(const bench::Call& c) {
    const bench::Matrix m(c.count, c.ranks);
    float* to = packed_.data();
    for (size_t first = 0; first < m.columns; first += m.width)
      for (size_t row = 0; row < m.rows; ++row, to += m.width)
        std::memcpy(to, c.in + row * m.columns + first, m.width * sizeof(float));
  }

  void round_trip(const bench::Call& c, int count) {
    const int peer = rank_ ^ 1;
    if (rank_ % 2 == 0) {
      ok(MPI_Send(c.in, count, MPI_FLOAT, peer, 0, MPI_COMM_WORLD));
      ok(MPI_Recv(c.out, count, MPI_FLOAT, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    } else {
      ok(MPI_Recv(c.out, count, MPI_FLOAT, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      ok(MPI_Send(c.out, count, MPI_FLOAT, peer, 0, MPI_COMM_WORLD));
    }
  }

  int rank_ = 0;
  MPI_Datatype columns_ = MPI_DATATYPE_NULL;
  std::vector<float> packed_;
};

void body(const bench::Job& job) {
  ok(MPI_Init(nullptr, nullptr));
  MpiEngine engine;
  bench::measure(engine, job);
  ok(MPI_Finalize());
}

}  // namespace

int main(int argc, char** argv) { return bench::run_driver(argc, argv, body); }
