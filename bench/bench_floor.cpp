// The floor under every all-reduce: each rank reads and writes its own buffer once, in place, and talks to
// nobody. Plain and non-temporal stores are both timed; the faster one counts. An all-reduce needs every
// rank's data, so this one is over when all ranks are done too: with more ranks than cores they take turns.
#include "floor_kernel.hpp"
#include "harness.hpp"

namespace {

class FloorEngine : public bench::Engine {
 public:
  int rank() const override { return rank_; }
  std::vector<std::string> variants(bench::Op) const override { return {"plain", "non-temporal"}; }
  void call(const bench::Call& c) override { bench::scale_in_place(c.out, c.count, factor, c.variant == 1); }
  bool ends_together() const override { return true; }
  float expected(const bench::Call& c, size_t i) const override {
    bench::Call root = c;
    root.op = bench::Op::broadcast;  // the fill of rank 0
    return factor * (Engine::expected(root, i) + static_cast<float>(c.rank));
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
