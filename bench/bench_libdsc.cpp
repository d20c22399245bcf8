// Measures this library.
#include "libdsc_engine.hpp"

namespace {

void body(const bench::Job& job) {
  bench::LibdscEngine engine(job);
  bench::measure(engine, job);
  bench::ok(dsc_finalize());
}

}  // namespace

int main(int argc, char** argv) { return bench::run_driver(argc, argv, body); }
