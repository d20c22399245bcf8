// Measures the host time of a collective that is put on a stream: through libdsc, and through direct calls of
// NCCL. Both take turns in one process, on communicators of the same ranks. Rank 0 prints a line of JSON for
// each operation and size. Ranks are processes, which share a GPU if there are fewer GPUs. Exits with 77 if
// there is no GPU.
//
// bench_gpu_calls [--ranks N] [--rounds N] [--calls N]
#include <dsc/dsc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "device/device.hpp"
#include "device/loader.hpp"
#include "engine_nccl/nccl_library.hpp"

namespace {

constexpr int kWarm = 2;  // rounds for warming up
constexpr size_t kSizes[] = {4, 64 << 10, 1 << 20};
constexpr int kSkipped = 77;

struct Arguments {
  int ranks = 1;
  int rounds = 41;
  int calls = 50;  // calls of one way in a round, between two readings of the clock
};

void check(dsc_result_t result, const char* what) {
  if (result != DSC_OK) throw std::runtime_error(std::string(what) + ": " + dsc_last_error_message());
}

struct Gpu {
  std::shared_ptr<const dsc::CudaLibrary> library;
  std::shared_ptr<const dsc::Device> device;
  dsc::CudaStream* stream = nullptr;
  bool is_fake = false;

  const dsc::CudaFunctions& cuda() const { return library->functions; }
  void synchronize() const { library->check(cuda().stream_synchronize(stream), "cuStreamSynchronize"); }
};

// NCCL takes several ranks on one GPU for ranks on different hosts, which communicate through sockets.
Gpu open_gpu(int rank, int ranks) {
  const dsc::Loader loader = dsc::process_loader();
  Gpu gpu;
  gpu.library = std::make_shared<dsc::CudaLibrary>(dsc::load_cuda("", dsc::process_environment(), loader));
  std::string why;
  void* const handle = loader.open(gpu.library->path, dsc::OpenMode::only_if_loaded, why);
  gpu.is_fake = handle != nullptr && loader.symbol(handle, "fake_gpu_misuses") != nullptr;
  if (gpu.library->devices < ranks) {
    ::setenv("NCCL_HOSTID", ("rank-" + std::to_string(rank)).c_str(), 1);
    ::setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    ::setenv("NCCL_IB_DISABLE", "1", 0);
  }
  gpu.device = dsc::Device::bind(gpu.library, rank % gpu.library->devices);
  dsc::CudaDevice number = 0;
  dsc::CudaContext* context = nullptr;
  gpu.library->check(gpu.cuda().device_get(&number, gpu.device->number()), "cuDeviceGet");
  gpu.library->check(gpu.cuda().device_primary_ctx_retain(&context, number), "cuDevicePrimaryCtxRetain");
  gpu.library->check(gpu.cuda().ctx_push_current(context), "cuCtxPushCurrent");
  gpu.library->check(gpu.cuda().stream_create_with_priority(&gpu.stream, dsc::kCudaStreamNonBlocking, 0),
                     "cuStreamCreateWithPriority");
  return gpu;
}

dsc_comm_t* join(int rank, const Arguments& arguments, int device) {
  dsc_init_options_t options;
  check(dsc_init_options_init(&options, sizeof options), "dsc_init_options_init");
  const std::string job = "bench-gpu-calls-" + std::to_string(::getppid());
  options.rank = rank;
  options.world_size = arguments.ranks;
  options.job_id = job.c_str();
  options.backend = DSC_BACKEND_DEVICE;
  options.device = device;
  dsc_comm_t* world = nullptr;
  check(dsc_init_distributed(&options, &world), "dsc_init_distributed");
  return world;
}

struct Direct {
  dsc::NcclLibrary library;
  dsc::NcclComm* comm = nullptr;

  const dsc::NcclFunctions& nccl() const { return library.functions; }
  void check(dsc::NcclResult result, const char* what) const {
    if (result != dsc::NcclResult::success)
      throw std::runtime_error(std::string(what) + ": " + nccl().get_error_string(result));
  }
};

// Uses the copy of NCCL that libdsc has loaded.
Direct open_direct(dsc_comm_t* world, int rank, int ranks) {
  Direct direct{dsc::load_nccl("", dsc::process_environment(), dsc::process_loader())};
  dsc::NcclUniqueId id{};
  if (rank == 0) direct.check(direct.nccl().get_unique_id(&id), "ncclGetUniqueId");
  check(dsc_broadcast(world, &id, &id, sizeof id, DSC_DTYPE_U8, 0, nullptr, nullptr), "dsc_broadcast");
  dsc::NcclConfig config;
  direct.check(direct.nccl().comm_init_rank_config(&direct.comm, ranks, id, rank, &config),
               "ncclCommInitRankConfig");
  return direct;
}

struct Buffers {
  void* send;
  void* recv;
  int ranks;
};

// `direct` and `ours` put one operation on a stream. `bytes` is the size of the larger buffer.
struct Operation {
  const char* name;
  std::function<dsc::NcclResult(const Direct&, const Buffers&, size_t bytes, dsc::CudaStream*)> direct;
  std::function<dsc_result_t(dsc_comm_t*, const Buffers&, size_t bytes, void* stream, dsc_work_t**)> ours;
};

size_t part(const Buffers& b, size_t bytes) {
  return std::max<size_t>(bytes / 4 / static_cast<size_t>(b.ranks), 1);
}

std::vector<Operation> operations() {
  using dsc::NcclOp;
  using dsc::NcclType;
  return {
      {"all_reduce",
       [](const Direct& d, const Buffers& b, size_t bytes, dsc::CudaStream* s) {
         return d.nccl().all_reduce(b.send, b.recv, bytes / 4, NcclType::float32, NcclOp::sum, d.comm, s);
       },
       [](dsc_comm_t* c, const Buffers& b, size_t bytes, void* s, dsc_work_t** work) {
         return dsc_all_reduce(c, b.send, b.recv, bytes / 4, DSC_DTYPE_F32, DSC_OP_SUM, s, work);
       }},
      {"broadcast",
       [](const Direct& d, const Buffers& b, size_t bytes, dsc::CudaStream* s) {
         return d.nccl().broadcast(b.send, b.send, bytes / 4, NcclType::float32, 0, d.comm, s);
       },
       [](dsc_comm_t* c, const Buffers& b, size_t bytes, void* s, dsc_work_t** work) {
         return dsc_broadcast(c, b.send, b.send, bytes / 4, DSC_DTYPE_F32, 0, s, work);
       }},
      {"all_gather",
       [](const Direct& d, const Buffers& b, size_t bytes, dsc::CudaStream* s) {
         return d.nccl().all_gather(b.send, b.recv, part(b, bytes), NcclType::float32, d.comm, s);
       },
       [](dsc_comm_t* c, const Buffers& b, size_t bytes, void* s, dsc_work_t** work) {
         return dsc_all_gather(c, b.send, b.recv, part(b, bytes), DSC_DTYPE_F32, s, work);
       }},
      {"reduce_scatter",
       [](const Direct& d, const Buffers& b, size_t bytes, dsc::CudaStream* s) {
         return d.nccl().reduce_scatter(b.send, b.recv, part(b, bytes), NcclType::float32, NcclOp::sum,
                                        d.comm, s);
       },
       [](dsc_comm_t* c, const Buffers& b, size_t bytes, void* s, dsc_work_t** work) {
         return dsc_reduce_scatter(c, b.send, b.recv, part(b, bytes), DSC_DTYPE_F32, DSC_OP_SUM, s, work);
       }},
  };
}

struct Way {
  const char* name;
  std::function<void()> call;
  std::vector<double> us{};
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// A round is short enough for the driver's queue, so no call waits for the device.
void take_turns(const Gpu& gpu, const Arguments& arguments, std::vector<Way>& ways) {
  using Clock = std::chrono::steady_clock;
  for (int round = -kWarm; round < arguments.rounds; ++round)
    for (Way& way : ways) {
      const auto start = Clock::now();
      for (int i = 0; i < arguments.calls; ++i) way.call();
      const std::chrono::duration<double, std::micro> taken = Clock::now() - start;
      gpu.synchronize();
      if (round >= 0) way.us.push_back(taken.count() / arguments.calls);
    }
}

struct Rank {
  const Gpu& gpu;
  const Direct& direct;
  dsc_comm_t* world;
  const Arguments& arguments;
  Buffers buffers;
};

// The third way requests a work object and makes the stream wait for it.
std::vector<Way> measure(const Rank& self, const Operation& operation, size_t bytes) {
  dsc::CudaStream* const stream = self.gpu.stream;
  std::vector<Way> ways = {
      {"nccl",
       [&] {
         self.direct.check(operation.direct(self.direct, self.buffers, bytes, stream), operation.name);
       }},
      {"libdsc",
       [&] { check(operation.ours(self.world, self.buffers, bytes, stream, nullptr), operation.name); }},
      {"libdsc_work", [&] {
         dsc_work_t* work = nullptr;
         check(operation.ours(self.world, self.buffers, bytes, stream, &work), operation.name);
         check(dsc_work_wait(work, 0, stream), "dsc_work_wait");
         check(dsc_work_destroy(work), "dsc_work_destroy");
       }}};
  take_turns(self.gpu, self.arguments, ways);
  return ways;
}

void print(const Rank& self, const Operation& operation, size_t bytes, const std::vector<Way>& ways) {
  const double least = median(ways[0].us);
  std::printf(
      "{\"bench\":\"gpu_calls\",\"fake\":%s,\"device\":\"%s\",\"nccl\":\"%s\",\"ranks\":%d,\"op\":\"%s\","
      "\"bytes\":%zu,\"rounds\":%d,\"calls\":%d",
      self.gpu.is_fake ? "true" : "false", self.gpu.device->name().c_str(),
      self.direct.library.version.c_str(), self.arguments.ranks, operation.name, bytes, self.arguments.rounds,
      self.arguments.calls);
  for (const Way& way : ways) std::printf(",\"%s_us\":%.3f", way.name, median(way.us));
  for (size_t i = 1; i < ways.size(); ++i)
    std::printf(",\"%s_over_nccl_us\":%.3f,\"%s_ratio\":%.3f", ways[i].name, median(ways[i].us) - least,
                ways[i].name, median(ways[i].us) / least);
  std::printf("}\n");
  std::fflush(stdout);
}

void allocate(const Gpu& gpu, Buffers& buffers) {
  const size_t most = *std::max_element(std::begin(kSizes), std::end(kSizes)) * 4;
  for (void** buffer : {&buffers.send, &buffers.recv}) {
    dsc::CudaAddress address = 0;
    gpu.library->check(gpu.cuda().mem_alloc(&address, most), "cuMemAlloc");
    gpu.library->check(gpu.cuda().memset_d8_async(address, 0, most, gpu.stream), "cuMemsetD8Async");
    *buffer = reinterpret_cast<void*>(address);
  }
  gpu.synchronize();
}

void be_rank(int rank, const Arguments& arguments) {
  const Gpu gpu = open_gpu(rank, arguments.ranks);
  dsc_comm_t* const world = join(rank, arguments, gpu.device->number());
  const Direct direct = open_direct(world, rank, arguments.ranks);
  if (rank == 0 && gpu.is_fake)
    std::fprintf(
        stderr,
        "bench_gpu_calls: FAKE driver and NCCL: these are not figures of a GPU; only the host time of libdsc "
        "(the difference) is meaningful\n");
  Rank self{gpu, direct, world, arguments, {nullptr, nullptr, arguments.ranks}};
  allocate(gpu, self.buffers);
  for (const Operation& operation : operations())
    for (const size_t bytes : kSizes) {
      check(dsc_barrier(world, nullptr, nullptr), "dsc_barrier");
      const std::vector<Way> ways = measure(self, operation, bytes);
      if (rank == 0) print(self, operation, bytes, ways);
    }
  gpu.synchronize();
  direct.check(direct.nccl().comm_destroy(direct.comm), "ncclCommDestroy");
  check(dsc_finalize(), "dsc_finalize");
}

int try_rank(int rank, const Arguments& arguments) {
  try {
    be_rank(rank, arguments);
    return 0;
  } catch (const dsc::Error& error) {
    std::fprintf(stderr, "bench_gpu_calls: rank %d: %s\n", rank, error.what());
    return error.code() == DSC_ERR_NO_BACKEND ? kSkipped : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_gpu_calls: rank %d: %s\n", rank, error.what());
    return 1;
  }
}

int run_ranks(const Arguments& arguments) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < arguments.ranks; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(try_rank(rank, arguments));
    children.push_back(child);
  }
  int worst = 0;
  for (const pid_t child : children) {
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return 1;
    const int code = WEXITSTATUS(status);
    if (code != 0 && worst != 1) worst = code;
  }
  return worst;
}

bool parse(int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const int value = i + 1 < argc ? std::atoi(argv[i + 1]) : 0;
    int* const place = name == "--ranks"    ? &arguments.ranks
                       : name == "--rounds" ? &arguments.rounds
                       : name == "--calls"  ? &arguments.calls
                                            : nullptr;
    if (place == nullptr || value < 1 || value > 1000) return false;
    *place = value;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  if (!parse(argc, argv, arguments)) {
    std::fprintf(stderr, "usage: bench_gpu_calls [--ranks N] [--rounds N] [--calls N]\n");
    return 2;
  }
  return run_ranks(arguments);
}
