// Measures bucket copies on a GPU, compared with a plain copy by the driver. The parameters of two models are
// gathered into one bucket and scattered back; each of these takes turns with the plain copy. Prints GB/s,
// read and written. Exits with 77 if there is no GPU.
//
// bench_gpu_kernels [--counts resnet50|gpt2]: prints the numbers of elements of the tensors instead, in
// order.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "device/kernels.hpp"
#include "device/loader.hpp"

namespace {

using dsc::CudaAddress;
using Counts = std::vector<uint64_t>;

constexpr int kRounds = 21;
constexpr int kRepeats = 10;  // calls of one way in a round, between two readings of the clock

// A convolution without bias, and the two vectors of its batch normalization.
void add_convolution(Counts& counts, uint64_t in, uint64_t out, uint64_t side) {
  counts.insert(counts.end(), {in * out * side * side, out, out});
}

Counts resnet50() {
  Counts counts;
  add_convolution(counts, 3, 64, 7);
  uint64_t in = 64, width = 64;
  for (const int blocks : {3, 4, 6, 3}) {
    for (int block = 0; block < blocks; ++block) {
      add_convolution(counts, in, width, 1);
      add_convolution(counts, width, width, 3);
      add_convolution(counts, width, 4 * width, 1);
      if (block == 0) add_convolution(counts, in, 4 * width, 1);
      in = 4 * width;
    }
    width *= 2;
  }
  counts.insert(counts.end(), {2048 * 1000, 1000});
  return counts;
}

Counts gpt2() {
  constexpr uint64_t kWidth = 768;
  Counts counts = {50257 * kWidth, 1024 * kWidth};
  for (int layer = 0; layer < 12; ++layer)
    counts.insert(counts.end(),
                  {kWidth, kWidth, 3 * kWidth * kWidth, 3 * kWidth, kWidth * kWidth, kWidth, kWidth, kWidth,
                   4 * kWidth * kWidth, 4 * kWidth, 4 * kWidth * kWidth, kWidth});
  counts.insert(counts.end(), {kWidth, kWidth});
  return counts;
}

struct Model {
  const char* name;
  Counts counts;
  size_t tensors;
  uint64_t elements;
};

std::vector<Model> models() {
  std::vector<Model> all = {{"resnet50", resnet50(), 161, 25'557'032}, {"gpt2", gpt2(), 148, 124'439'808}};
  for (const Model& model : all) {
    uint64_t sum = 0;
    for (const uint64_t count : model.counts) sum += count;
    if (model.counts.size() != model.tensors || sum != model.elements)
      throw std::logic_error(std::string(model.name) + ": not the published number of parameters");
  }
  return all;
}

// The first GPU, whose context is current.
struct Gpu {
  std::shared_ptr<const dsc::CudaLibrary> library;
  dsc::CudaStream* stream = nullptr;
  int multiprocessors = 0;
  char name[128] = {};

  const dsc::CudaFunctions& cuda() const { return library->functions; }
  void check(dsc::CudaResult result, const char* what) const {
    if (result != dsc::CudaResult::success)
      throw std::runtime_error(std::string(what) + ": error " +
                               std::to_string(static_cast<unsigned>(result)));
  }
  CudaAddress allocate(uint64_t bytes) const {
    CudaAddress address = 0;
    check(cuda().mem_alloc(&address, bytes), "cuMemAlloc");
    check(cuda().memset_d8_async(address, 0, bytes, stream), "cuMemsetD8Async");
    return address;
  }
  void synchronize() const { check(cuda().stream_synchronize(stream), "cuStreamSynchronize"); }
};

Gpu open_gpu() {
  Gpu gpu;
  gpu.library = std::make_shared<dsc::CudaLibrary>(
      dsc::load_cuda("", dsc::process_environment(), dsc::process_loader()));
  dsc::CudaDevice device = 0;
  dsc::CudaContext* context = nullptr;
  gpu.check(gpu.cuda().device_get(&device, 0), "cuDeviceGet");
  gpu.check(gpu.cuda().device_get_name(gpu.name, sizeof gpu.name, device), "cuDeviceGetName");
  gpu.check(gpu.cuda().device_get_attribute(&gpu.multiprocessors, dsc::CudaDeviceAttribute::multiprocessors,
                                            device),
            "cuDeviceGetAttribute");
  gpu.check(gpu.cuda().device_primary_ctx_retain(&context, device), "cuDevicePrimaryCtxRetain");
  gpu.check(gpu.cuda().ctx_push_current(context), "cuCtxPushCurrent");
  gpu.check(gpu.cuda().stream_create_with_priority(&gpu.stream, dsc::kCudaStreamNonBlocking, 0),
            "cuStreamCreate");
  return gpu;
}

struct Way {
  std::string name;
  uint64_t moved_bytes;  // bytes read plus bytes written
  std::function<void()> run;
  std::vector<double> seconds{};
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + kRounds / 2, values.end());
  return values[kRounds / 2];
}

void take_turns(const Gpu& gpu, std::vector<Way>& ways) {
  using Clock = std::chrono::steady_clock;
  for (int round = -1; round < kRounds; ++round)  // the first round is not counted
    for (Way& way : ways) {
      gpu.synchronize();
      const auto start = Clock::now();
      for (int i = 0; i < kRepeats; ++i) way.run();
      gpu.synchronize();
      if (round >= 0)
        way.seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count() / kRepeats);
    }
}

// The other ways are compared with the first one.
void report(const char* model, const std::vector<Way>& ways) {
  const auto speed = [](const Way& way) {
    return static_cast<double>(way.moved_bytes) / median(way.seconds) / 1e9;
  };
  for (const Way& way : ways)
    std::printf("%-9s %-22s %9.1f us %8.1f GB/s %6.3f of copy\n", model, way.name.c_str(),
                median(way.seconds) * 1e6, speed(way), speed(way) / speed(ways[0]));
}

void add_ways(std::vector<Way>& ways, const Gpu& gpu, const dsc::Kernels& kernels,
              const dsc::BucketCopy& copy, const char* types, uint64_t moved_bytes) {
  const std::string as = std::string(" ") + types + (copy.norm != 0 ? " norm" : "");
  ways.push_back({"gather" + as, moved_bytes, [&gpu, &kernels, copy] { kernels.gather(copy, gpu.stream); }});
  ways.push_back(
      {"scatter" + as, moved_bytes, [&gpu, &kernels, copy] { kernels.scatter(copy, gpu.stream); }});
}

void measure(const Gpu& gpu, const dsc::Kernels& kernels, const Model& model) {
  const uint64_t n = model.elements;
  const CudaAddress bucket = gpu.allocate(4 * n), other = gpu.allocate(4 * n),
                    norm = gpu.allocate(dsc::Kernels::norm_bytes());
  std::vector<dsc::BucketPart> parts;
  uint64_t offset = 0;
  for (const uint64_t count : model.counts) {
    parts.push_back({gpu.allocate(4 * count), count, offset});
    offset += count;
  }
  std::vector<Way> ways = {
      {"driver's copy", 8 * n,
       [&] { gpu.check(gpu.cuda().memcpy_async(other, bucket, 4 * n, gpu.stream), "cuMemcpyAsync"); }}};
  const dsc::BucketCopy same{parts, DSC_DTYPE_F32, bucket, DSC_DTYPE_F32};
  dsc::BucketCopy scaled = same, watched = same, half = same;
  scaled.scale = watched.scale = half.scale = 0.125;
  watched.norm = norm;
  half.bucket_dtype = DSC_DTYPE_BF16;
  add_ways(ways, gpu, kernels, same, "f32", 8 * n);
  add_ways(ways, gpu, kernels, scaled, "f32 scaled", 8 * n);
  add_ways(ways, gpu, kernels, watched, "f32 scaled", 8 * n);
  add_ways(ways, gpu, kernels, half, "f32-bf16 scaled", 6 * n);
  take_turns(gpu, ways);
  report(model.name, ways);
  for (const dsc::BucketPart& part : parts) gpu.cuda().mem_free(part.tensor);
  for (const CudaAddress address : {bucket, other, norm}) gpu.cuda().mem_free(address);
}

int print_counts(const std::string& name) {
  for (const Model& model : models())
    if (model.name == name) {
      for (const uint64_t count : model.counts) std::printf("%llu\n", static_cast<unsigned long long>(count));
      return 0;
    }
  std::fprintf(stderr, "bench_gpu_kernels: no model '%s' (known: resnet50, gpt2)\n", name.c_str());
  return 2;
}

int run(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--counts") == 0) return print_counts(argv[2]);
  if (argc != 1) {
    std::fprintf(stderr, "usage: bench_gpu_kernels [--counts resnet50|gpt2]\n");
    return 2;
  }
  const Gpu gpu = open_gpu();
  const dsc::Kernels kernels(gpu.library, gpu.multiprocessors);
  std::printf("%s, CUDA %s; median of %d rounds\n", gpu.name, gpu.library->version.c_str(), kRounds);
  for (const Model& model : models()) measure(gpu, kernels, model);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const dsc::Error& error) {
    std::fprintf(stderr, "bench_gpu_kernels: %s\n", error.what());
    return error.code() == DSC_ERR_NO_BACKEND ? 77 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_gpu_kernels: %s\n", error.what());
    return 1;
  }
}
