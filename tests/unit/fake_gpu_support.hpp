// Runs ranks as threads or processes on the fake GPUs. A test runs its body in a child process that has a
// time limit and its own environment. A failed check ends the child.
#pragma once

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "../support/fake_gpu/cuda_api.hpp"
#include "../support/fake_gpu/fake_gpu.h"
#include "../support/fake_gpu/nccl_api.hpp"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      std::fprintf(stderr, "%s:%d: not: %s\n", __FILE__, __LINE__, #condition); \
      ::_exit(1);                                                               \
    }                                                                           \
  } while (false)
#define CHECK_CUDA(call) CHECK((call) == dsc::CudaResult::success)
#define CHECK_NCCL(call) CHECK((call) == dsc::NcclResult::success)

namespace fake_test {

using dsc::CudaAddress;
using dsc::CudaContext;
using dsc::CudaDevice;
using dsc::CudaEvent;
using dsc::CudaResult;
using dsc::CudaStream;
using dsc::NcclComm;
using dsc::NcclConfig;
using dsc::NcclOp;
using dsc::NcclResult;
using dsc::NcclType;
using dsc::NcclUniqueId;
using Variables = std::map<std::string, std::string>;

inline constexpr unsigned kChildSeconds = 100;

inline pid_t start_child(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  assert_true(child >= 0);
  if (child > 0) return child;
  ::alarm(kChildSeconds);
  body();
  ::_exit(0);
}

inline int status_of(pid_t child) {
  int status = -1;
  assert_int_equal(::waitpid(child, &status, 0), child);
  return status;
}

inline void in_child(const Variables& variables, const std::function<void()>& body) {
  const pid_t child = start_child([&] {
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
    body();
  });
  assert_int_equal(status_of(child), 0);
}

// The primary context of the device, current for this thread.
class Device {
 public:
  explicit Device(int device) : device_(device) {
    CHECK_CUDA(cuInit(0));
    CudaContext* context = nullptr;
    CHECK_CUDA(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_CUDA(cuCtxPushCurrent_v2(context));
    CHECK_CUDA(cuStreamCreateWithPriority(&stream, dsc::kCudaStreamNonBlocking, 0));
  }
  ~Device() {
    cuStreamDestroy_v2(stream);
    cuCtxPopCurrent_v2(nullptr);
    cuDevicePrimaryCtxRelease_v2(device_);
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  CudaStream* stream = nullptr;

 private:
  int device_;
};

// Blocks a stream until the gate is opened or destroyed.
class Gate {
 public:
  explicit Gate(CudaStream* stream) {
    const auto wait = [](void* opened) {
      const std::unique_ptr<std::future<void>> future(static_cast<std::future<void>*>(opened));
      future->wait();
    };
    CHECK_CUDA(cuLaunchHostFunc(stream, wait, new std::future<void>(opened_.get_future())));
  }
  void open() { opened_.set_value(); }

 private:
  std::promise<void> opened_;
};

// An array of elements in device memory.
template <typename T>
class Array {
 public:
  explicit Array(size_t count, T value = T{}) : Array(std::vector<T>(count, value)) {}
  explicit Array(const std::vector<T>& values) : count_(values.size()) {
    CHECK_CUDA(cuMemAlloc_v2(&address_, count_ * sizeof(T)));
    CHECK_CUDA(cuMemcpyHtoD_v2(address_, values.data(), count_ * sizeof(T)));
  }
  ~Array() { cuMemFree_v2(address_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  T* data() const { return reinterpret_cast<T*>(address_); }
  CudaAddress address() const { return address_; }
  std::vector<T> read() const {
    std::vector<T> values(count_);
    CHECK_CUDA(cuMemcpyDtoH_v2(values.data(), address_, count_ * sizeof(T)));
    return values;
  }
  bool holds(T value) const { return read() == std::vector<T>(count_, value); }

 private:
  CudaAddress address_ = 0;
  size_t count_;
};

// Returns whether the condition becomes true within 20 s, far longer than a healthy run needs.
inline bool soon(const std::function<bool()>& condition) {
  for (int i = 0; i < 20'000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

// Waits long enough to see that something does not happen.
inline void wait_a_little() { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }

using Clock = std::chrono::steady_clock;

// Checks that a condition holds for at least limit_ms. If the check itself runs too late, it passes.
inline bool holds_for(int limit_ms, Clock::time_point since, const std::function<bool()>& condition) {
  return condition() || Clock::now() - since >= std::chrono::milliseconds(limit_ms);
}

inline bool done(CudaStream* stream) { return cuStreamQuery(stream) == CudaResult::success; }

inline NcclResult state_of(NcclComm* comm) {
  NcclResult state{};
  CHECK_NCCL(ncclCommGetAsyncError(comm, &state));
  return state;
}

inline NcclResult settled(NcclComm* comm) {
  CHECK(soon([&] { return state_of(comm) != NcclResult::in_progress; }));
  return state_of(comm);
}

inline NcclConfig nonblocking() {
  NcclConfig config;
  config.blocking = 0;
  return config;
}

// A barrier for ranks that are threads or processes.
class Meeting {
 public:
  Meeting() : arrivals_(new (shared_page()) std::atomic<int>(0)) {}
  ~Meeting() { ::munmap(arrivals_, sizeof *arrivals_); }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  void wait_for_all(int ranks) {
    const int last = (arrivals_->fetch_add(1) / ranks + 1) * ranks;
    CHECK(soon([&] { return arrivals_->load() >= last; }));
  }

 private:
  static void* shared_page() {
    void* const page =
        ::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    return page;
  }

  std::atomic<int>* arrivals_;
};

struct Rank {
  int rank = 0;
  int ranks = 0;
  CudaStream* stream = nullptr;
  NcclComm* comm = nullptr;
  Meeting* meeting = nullptr;

  // Waits for all ranks. Without this, a rank that aborts its communicator would disturb ranks that still
  // wait.
  void when_all_are_here() const { meeting->wait_for_all(ranks); }
};

using Body = std::function<void(const Rank&)>;

inline void be_rank(const NcclUniqueId& id, int rank, int ranks, int device, const Body& body,
                    Meeting* meeting = nullptr) {
  const Device own(device);
  NcclConfig config = nonblocking();
  Rank self{rank, ranks, own.stream, nullptr, meeting};
  const NcclResult begun = ncclCommInitRankConfig(&self.comm, ranks, id, rank, &config);
  CHECK(begun == NcclResult::success || begun == NcclResult::in_progress);
  body(self);
}

inline NcclUniqueId fresh_id() {
  NcclUniqueId id;
  CHECK_NCCL(ncclGetUniqueId(&id));
  return id;
}

// Runs `body` on the ranks of one communicator, which are threads of this process. The body ends the
// communicator.
inline void as_threads(int ranks, const Body& body) {
  const NcclUniqueId id = fresh_id();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] { be_rank(id, rank, ranks, rank, body); });
  for (std::thread& thread : threads) thread.join();
}

// Runs `body` on ranks that are processes. Each of them appears to be on a separate host.
inline void as_processes(int ranks, const Variables& variables, const Body& body) {
  const NcclUniqueId id = fresh_id();
  Meeting meeting;
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank)
    children.push_back(start_child([&] {
      ::setenv("NCCL_HOSTID", std::to_string(rank).c_str(), 1);
      for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
      be_rank(id, rank, ranks, 0, body, &meeting);
    }));
  for (const pid_t child : children) assert_int_equal(status_of(child), 0);
}

// Returns what the body writes to stderr.
inline std::string complaints_of(const std::function<void()>& body) {
  const int file = static_cast<int>(::memfd_create("stderr", MFD_CLOEXEC)), own = ::dup(STDERR_FILENO);
  CHECK(::dup2(file, STDERR_FILENO) >= 0);
  body();
  CHECK(::dup2(own, STDERR_FILENO) >= 0);
  char text[2000] = {};
  CHECK(::pread(file, text, sizeof text - 1, 0) >= 0);
  return text;
}

inline const Variables kEight = {{"FAKE_CUDA_DEVICES", "8"}};

}  // namespace fake_test
