// Measures the connections between hosts, with every rank as a separate host on the loopback device. It is
// comparable with the driver for Gloo, which uses the same sockets.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "base/environment.hpp"
#include "harness.hpp"
#include "store/file_store.hpp"
#include "transport/transport_group.hpp"

namespace {

constexpr dsc::ReduceSpec sum{.dtype = DSC_DTYPE_F32, .op = DSC_OP_SUM};
constexpr int64_t limit_ms = 60'000;

class WireEngine : public bench::Engine {
 public:
  explicit WireEngine(const bench::Job& job) : rank_(bench::rank_from_environment()) {
    const char* folder = std::getenv("BENCH_STORE");
    if (!folder)
      throw std::invalid_argument(
          "expected BENCH_STORE in the environment, a folder through which the ranks meet");
    std::vector<int32_t> members;
    for (int32_t rank = 0; rank < job.ranks; ++rank) members.push_back(rank);
    const dsc::TransportLibrary library = dsc::load_transport(dsc::process_environment());
    // Address of this rank's host; not set: all ranks are on one host.
    const char* address = std::getenv("BENCH_ADDRESS");
    transport_ = std::make_unique<dsc::TransportGroup>(
        std::make_shared<dsc::Transport>(library, address ? address : "127.0.0.1"), rank_, members);
    dsc::FileStore store(std::string(folder) + "/wire", "bench", deadline());
    transport_->connect(store, "wire", deadline());
    transport_->barrier(deadline());
  }

  int rank() const override { return rank_; }

  void call(const bench::Call& c) override {
    switch (c.op) {
      case bench::Op::all_reduce:
        return transport_->all_reduce(c.in, c.out, c.count, sum, deadline());
      case bench::Op::reduce:
        return transport_->reduce(c.in, c.in, c.count, sum, bench::root, deadline());
      case bench::Op::broadcast:
        return transport_->broadcast(c.out, c.count * sizeof(float), bench::root, deadline());
      case bench::Op::reduce_scatter:
        return reduce_scatter(c);
      case bench::Op::all_gather:
        return all_gather(c);
      case bench::Op::all_to_all:
        return transport_->exchange(parts(c.in, c), parts(c.out, c), deadline());
      case bench::Op::gather:
        return transport_->exchange(to_root(c.in, c), parts(c.out, c), deadline());
      case bench::Op::scatter:
        return transport_->exchange(parts(c.in, c), to_root(c.out, c), deadline());
      case bench::Op::barrier:
        return transport_->barrier(deadline());
      case bench::Op::send_recv:
        return round_trip(c);
      default:
        throw std::invalid_argument("the driver of wire does not offer this operation");
    }
  }

 private:
  using Blocks = std::vector<dsc::TransportBlock>;

  static dsc::Deadline deadline() { return dsc::Deadline::after_ms(limit_ms); }

  // Returns one block of `count` elements for each rank; an empty block if a rank has none.
  static Blocks parts(float* all, const bench::Call& c) {
    Blocks blocks(static_cast<size_t>(c.ranks));
    for (size_t part = 0; all && part < blocks.size(); ++part)
      blocks[part] = {all + part * c.count, c.count * sizeof(float)};
    return blocks;
  }

  static Blocks to_root(float* part, const bench::Call& c) {
    Blocks blocks(static_cast<size_t>(c.ranks));
    blocks[bench::root] = {part, c.count * sizeof(float)};
    return blocks;
  }

  void all_gather(const bench::Call& c) {
    const Blocks blocks = parts(c.out, c);
    std::memcpy(blocks[static_cast<size_t>(rank_)].data, c.in, c.count * sizeof(float));
    transport_->all_gather(blocks, deadline());
  }

  void reduce_scatter(const bench::Call& c) {
    const std::vector<size_t> counts(static_cast<size_t>(c.ranks), c.count);
    transport_->reduce_scatter(c.in, c.out, counts, sum, deadline());
  }

  void round_trip(const bench::Call& c) {
    Blocks there(static_cast<size_t>(c.ranks)), back(there);
    const auto peer = static_cast<size_t>(rank_ ^ 1);
    const bool first = rank_ % 2 == 0;
    there[peer] = {first ? c.in : c.out, c.count * sizeof(float)};
    back[peer] = {c.out, c.count * sizeof(float)};
    const Blocks none(there.size());
    if (first) transport_->exchange(there, none, deadline());
    transport_->exchange(none, back, deadline());
    if (!first) transport_->exchange(there, none, deadline());
  }

  int rank_;
  std::unique_ptr<dsc::TransportGroup> transport_;
};

void body(const bench::Job& job) {
  WireEngine engine(job);
  bench::measure(engine, job);
}

}  // namespace

int main(int argc, char** argv) { return bench::run_driver(argc, argv, body); }
