// Open MPI and MPICH: one source, compiled once with each.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <stdexcept>

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
    }
  }

 private:
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
};

void body(const bench::Job& job) {
  ok(MPI_Init(nullptr, nullptr));
  MpiEngine engine;
  bench::measure(engine, job);
  ok(MPI_Finalize());
}

}  // namespace

int main(int argc, char** argv) { return bench::run_driver(argc, argv, body); }
