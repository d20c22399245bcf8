// Gloo over TCP on the loopback device. Its newer all-reduce and its older algorithm classes are all timed,
// and the fastest one counts.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_bcube.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "harness.hpp"

namespace {

using Algorithm = gloo::AllreduceOptions::Algorithm;

constexpr void (*sum)(void*, const void*, const void*, size_t) = &gloo::sum<float>;

class GlooEngine : public bench::Engine {
 public:
  explicit GlooEngine(const bench::Job& job) : rank_(bench::rank_from_environment()) {
    const char* folder = std::getenv("BENCH_STORE");
    if (!folder)
      throw std::invalid_argument(
          "expected BENCH_STORE in the environment, a folder through which the ranks meet");
    gloo::transport::tcp::attr own;
    // Address of this rank's host; not set: all ranks are on one host.
    const char* address = std::getenv("BENCH_ADDRESS");
    own.hostname = address ? address : "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(own);
    gloo::rendezvous::FileStore store(folder);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank_, job.ranks);
    context->connectFullMesh(store, device);
    context_ = context;
  }

  int rank() const override { return rank_; }

  // The candidates that were the fastest at some size. For more than two ranks the rings are left out,
  // because with more ranks than cores they were many times slower.
  std::vector<std::string> variants(bench::Op op) const override {
    if (op != bench::Op::all_reduce) return {"default"};
    if (context_->size == 2) return {"bcube", "bcube class", "ring"};
    return {"bcube", "bcube class", "halving-doubling class"};
  }

  void prepare(const bench::Call& c) override {
    if (c.op != bench::Op::all_reduce) return;
    const std::vector<float*> buffers{c.out};
    const int count = static_cast<int>(c.count);
    bcube_ = std::make_unique<gloo::AllreduceBcube<float>>(context_, buffers, count);
    if (c.ranks > 2)
      halving_doubling_ = std::make_unique<gloo::AllreduceHalvingDoubling<float>>(context_, buffers, count);
  }

  void call(const bench::Call& c) override {
    switch (c.op) {
      case bench::Op::all_reduce:
        return all_reduce(c);
      case bench::Op::broadcast:
        return broadcast(c);
      case bench::Op::all_gather:
        return all_gather(c);
      case bench::Op::all_to_all:
        return all_to_all(c);
      case bench::Op::reduce:
        return reduce(c);
      case bench::Op::gather:
        return gather(c);
      case bench::Op::scatter:
        return scatter(c);
      case bench::Op::barrier:
        return barrier();
      case bench::Op::send_recv:
        return round_trip(c);
      default:
        break;
    }
    throw std::invalid_argument("the driver of gloo does not offer this operation");
  }

 private:
  void all_reduce(const bench::Call& c) {
    if (c.variant == 1) return bcube_->run();
    if (c.variant == 2 && halving_doubling_) return halving_doubling_->run();
    gloo::AllreduceOptions options(context_);
    options.setAlgorithm(c.variant == 0 ? Algorithm::BCUBE : Algorithm::RING);
    options.setOutput(c.out, c.count);
    options.setReduceFunction(sum);
    gloo::allreduce(options);
  }

  void broadcast(const bench::Call& c) {
    gloo::BroadcastOptions options(context_);
    options.setOutput(c.out, c.count);
    options.setRoot(bench::root);
    gloo::broadcast(options);
  }

  void reduce(const bench::Call& c) {
    gloo::ReduceOptions options(context_);
    options.setOutput(c.in, c.count);  // in place; ranks other than the root use it as work space
    options.setRoot(bench::root);
    options.setReduceFunction(sum);
    gloo::reduce(options);
  }

  void gather(const bench::Call& c) {
    gloo::GatherOptions options(context_);
    options.setInput(c.in, c.count);
    if (c.out) options.setOutput(c.out, c.count * static_cast<size_t>(c.ranks));
    options.setRoot(bench::root);
    gloo::gather(options);
  }

  void scatter(const bench::Call& c) {
    gloo::ScatterOptions options(context_);
    std::vector<float*> parts;
    for (int part = 0; c.in && part < c.ranks; ++part)
      parts.push_back(c.in + static_cast<size_t>(part) * c.count);
    if (c.in) options.setInputs(parts, c.count);
    options.setOutput(c.out, c.count);
    options.setRoot(bench::root);
    gloo::scatter(options);
  }

  void all_to_all(const bench::Call& c) {
    gloo::AlltoallOptions options(context_);
    options.setInput(c.in, c.count * static_cast<size_t>(c.ranks));
    options.setOutput(c.out, c.count * static_cast<size_t>(c.ranks));
    gloo::alltoall(options);
  }

  void all_gather(const bench::Call& c) {
    gloo::AllgatherOptions options(context_);
    options.setInput(c.in, c.count);
    options.setOutput(c.out, c.count * static_cast<size_t>(c.ranks));
    gloo::allgather(options);
  }

  void barrier() {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }

  void round_trip(const bench::Call& c) {
    const uint64_t tag = 1;
    auto in = context_->createUnboundBuffer(c.in, c.count * sizeof(float));
    auto out = context_->createUnboundBuffer(c.out, c.count * sizeof(float));
    const bool first = rank_ % 2 == 0;
    if (first) in->send(rank_ ^ 1, tag), in->waitSend();
    out->recv(rank_ ^ 1, tag), out->waitRecv();
    if (!first) out->send(rank_ ^ 1, tag), out->waitSend();
  }

  int rank_;
  std::shared_ptr<gloo::Context> context_;
  std::unique_ptr<gloo::Algorithm> bcube_;
  std::unique_ptr<gloo::Algorithm> halving_doubling_;
};

void body(const bench::Job& job) {
  GlooEngine engine(job);
  bench::measure(engine, job);
}

}  // namespace

int main(int argc, char** argv) { return bench::run_driver(argc, argv, body); }
