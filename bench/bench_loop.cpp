// The measuring loop for engines in Python: a shared library that is called through ctypes and calls back.
// Callbacks return 1 for success, because ctypes returns 0 after an exception.
#include <cstdio>
#include <exception>
#include <stdexcept>

#include "harness.hpp"

extern "C" {

typedef void* (*BenchAllocate)(size_t count);
typedef int (*BenchPrepare)(const char* op, void* in, void* out, size_t count);
typedef int (*BenchCall)(void);

__attribute__((visibility("default"))) int bench_loop(int argc, char** argv, int rank, BenchAllocate allocate,
                                                      BenchPrepare prepare, BenchCall call);
}

namespace {

class CallbackEngine : public bench::Engine {
 public:
  CallbackEngine(const bench::Job& job, int rank, BenchAllocate allocate, BenchPrepare prepare,
                 BenchCall call)
      : job_(job), rank_(rank), allocate_(allocate), prepare_(prepare), call_(call) {}

  int rank() const override { return rank_; }

  float* allocate(size_t count) override {
    void* memory = allocate_(count);
    if (!memory) throw std::runtime_error("the allocating callback failed");
    return static_cast<float*>(memory);
  }

  void release(float*) override {}  // Python's garbage collector frees the buffers

  void prepare(const bench::Call& c) override {
    if (prepare_(job_.op_name.c_str(), c.in, c.out, c.count) != 1)
      throw std::runtime_error("the preparing callback failed");
  }

  void call(const bench::Call&) override {
    if (call_() != 1) throw std::runtime_error("the operation failed");
  }

 private:
  const bench::Job& job_;
  int rank_;
  BenchAllocate allocate_;
  BenchPrepare prepare_;
  BenchCall call_;
};

}  // namespace

int bench_loop(int argc, char** argv, int rank, BenchAllocate allocate, BenchPrepare prepare,
               BenchCall call) {
  try {
    const bench::Job job = bench::parse_job(argc, argv);
    CallbackEngine engine(job, rank, allocate, prepare, call);
    bench::measure(engine, job);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_loop: %s\n", error.what());
    return 1;
  }
}
