// Checks that the fake CUDA driver behaves like the real driver.
#include "fake_gpu_support.hpp"

using namespace fake_test;
using dsc::CudaCaptureMode;

namespace {

constexpr CudaResult kOk{}, kNoImage{200}, kNoContext{201}, kIllegalState{401}, kNotFound{500},
    kNotReady{600}, kBadAddress{700}, kUnsupported{900}, kInvalidated{901}, kUnjoined{904}, kImplicit{906},
    kCapturedEvent{907};

CudaEvent* make_event() {
  CudaEvent* event = nullptr;
  CHECK_CUDA(cuEventCreate(&event, dsc::kCudaEventDisableTiming));
  return event;
}

CudaStream* make_stream(unsigned flags) {
  CudaStream* stream = nullptr;
  CHECK_CUDA(cuStreamCreateWithPriority(&stream, flags, -1));
  return stream;
}

// Does not compile unless the fake functions have the prototypes by which the library calls them.
dsc::CudaFunctions cuda_functions() {
  dsc::CudaFunctions cuda;
  cuda.init = cuInit;
  cuda.driver_get_version = cuDriverGetVersion;
  cuda.get_error_name = cuGetErrorName;
  cuda.get_error_string = cuGetErrorString;
  cuda.device_get_count = cuDeviceGetCount;
  cuda.device_get = cuDeviceGet;
  cuda.device_get_name = cuDeviceGetName;
  cuda.device_get_uuid = cuDeviceGetUuid_v2;
  cuda.device_get_attribute = cuDeviceGetAttribute;
  cuda.device_primary_ctx_retain = cuDevicePrimaryCtxRetain;
  cuda.device_primary_ctx_release = cuDevicePrimaryCtxRelease_v2;
  cuda.ctx_get_current = cuCtxGetCurrent;
  cuda.ctx_push_current = cuCtxPushCurrent_v2;
  cuda.ctx_pop_current = cuCtxPopCurrent_v2;
  cuda.ctx_get_device = cuCtxGetDevice;
  cuda.pointer_get_attributes = cuPointerGetAttributes;
  cuda.mem_alloc = cuMemAlloc_v2;
  cuda.mem_free = cuMemFree_v2;
  cuda.mem_alloc_async = cuMemAllocAsync;
  cuda.mem_free_async = cuMemFreeAsync;
  cuda.mem_host_alloc = cuMemHostAlloc;
  cuda.mem_free_host = cuMemFreeHost;
  cuda.memcpy_async = cuMemcpyAsync;
  cuda.memset_d8_async = cuMemsetD8Async;
  cuda.stream_create_with_priority = cuStreamCreateWithPriority;
  cuda.stream_destroy = cuStreamDestroy_v2;
  cuda.stream_wait_event = cuStreamWaitEvent;
  cuda.stream_synchronize = cuStreamSynchronize;
  cuda.stream_is_capturing = cuStreamIsCapturing;
  cuda.thread_exchange_stream_capture_mode = cuThreadExchangeStreamCaptureMode;
  cuda.event_create = cuEventCreate;
  cuda.event_destroy = cuEventDestroy_v2;
  cuda.event_record = cuEventRecord;
  cuda.event_query = cuEventQuery;
  cuda.module_load_data = cuModuleLoadData;
  cuda.module_unload = cuModuleUnload;
  cuda.module_get_function = cuModuleGetFunction;
  cuda.launch_kernel = cuLaunchKernel;
  return cuda;
}

dsc::NcclFunctions nccl_functions() {
  dsc::NcclFunctions nccl;
  nccl.get_error_string = ncclGetErrorString;
  nccl.get_last_error = ncclGetLastError;
  nccl.get_unique_id = ncclGetUniqueId;
  nccl.comm_init_rank_config = ncclCommInitRankConfig;
  nccl.comm_finalize = ncclCommFinalize;
  nccl.comm_destroy = ncclCommDestroy;
  nccl.comm_abort = ncclCommAbort;
  nccl.comm_get_async_error = ncclCommGetAsyncError;
  nccl.comm_count = ncclCommCount;
  nccl.comm_cu_device = ncclCommCuDevice;
  nccl.comm_user_rank = ncclCommUserRank;
  nccl.group_start = ncclGroupStart;
  nccl.group_end = ncclGroupEnd;
  nccl.all_reduce = ncclAllReduce;
  nccl.reduce = ncclReduce;
  nccl.broadcast = ncclBroadcast;
  nccl.all_gather = ncclAllGather;
  nccl.reduce_scatter = ncclReduceScatter;
  nccl.send = ncclSend;
  nccl.recv = ncclRecv;
  nccl.red_op_create_pre_mul_sum = ncclRedOpCreatePreMulSum;
  nccl.red_op_destroy = ncclRedOpDestroy;
  nccl.comm_split = ncclCommSplit;
  nccl.comm_init_rank_scalable = ncclCommInitRankScalable;
  nccl.mem_alloc = ncclMemAlloc;
  nccl.mem_free = ncclMemFree;
  nccl.comm_window_register = ncclCommWindowRegister;
  nccl.comm_window_deregister = ncclCommWindowDeregister;
  nccl.comm_revoke = ncclCommRevoke;
  nccl.comm_shrink = ncclCommShrink;
  nccl.all_to_all = ncclAlltoAll;
  nccl.gather = ncclGather;
  nccl.scatter = ncclScatter;
  nccl.get_version = ncclGetVersion;
  return nccl;
}

template <typename Table>
void expect_full(const Table& table) {
  void* places[sizeof table / sizeof(void*)];
  std::memcpy(places, &table, sizeof table);
  for (const void* const place : places) assert_non_null(place);
}

void nothing_is_missing(void**) {
  expect_full(cuda_functions());
  expect_full(nccl_functions());
}

void nothing_works_before_init(void**) {
  in_child({}, [] {
    int count = 0;
    CudaAddress address = 0;
    CHECK(cuDeviceGetCount(&count) == CudaResult::not_initialized);
    CHECK_CUDA(cuInit(0));
    CHECK_CUDA(cuDeviceGetCount(&count));
    CHECK(count == 2);
    CHECK(cuMemAlloc_v2(&address, 8) == kNoContext);
    CHECK(fake_gpu_misuses() == 0);
  });
  in_child({{"FAKE_CUDA_DEVICES", "5"}}, [] {
    int device = 0, major = 0, processors = 0;
    char name[32];
    CHECK_CUDA(cuInit(0));
    CHECK_CUDA(cuDeviceGet(&device, 4));
    CHECK(cuDeviceGet(&device, 5) == CudaResult::invalid_device);
    CHECK_CUDA(cuDeviceGetName(name, sizeof name, 4));
    CHECK(std::string(name) == "fake device 4");
    CHECK_CUDA(cuDeviceGetAttribute(&major, dsc::CudaDeviceAttribute::compute_capability_major, 4));
    CHECK_CUDA(cuDeviceGetAttribute(&processors, dsc::CudaDeviceAttribute::multiprocessors, 4));
    CHECK(major == 9 && processors == 4);
  });
}

void its_start_can_take_long(void**) {
  in_child({{"FAKE_CUDA_INIT_HANG_MS", "30"}}, [] {
    const auto begin = std::chrono::steady_clock::now();
    CHECK_CUDA(cuInit(0));
    CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(30));
  });
}

void memory_can_be_short(void**) {
  in_child({{"FAKE_CUDA_MEMORY_MIB", "2"}}, [] {
    const Device device(0);
    const Array<char> one(1 << 20);
    CudaAddress address = 0;
    CHECK(cuMemAlloc_v2(&address, (1 << 20) + 1) == CudaResult::out_of_memory);
    CHECK_CUDA(cuMemAlloc_v2(&address, 1 << 20));
    CHECK_CUDA(cuMemFree_v2(address));
    const Device other(1);
    const Array<char> there(2 << 20);
  });
}

void contexts_are_a_stack_of_each_thread(void**) {
  in_child({}, [] {
    const Device outer(0);
    CudaContext *first = nullptr, *second = nullptr, *now = nullptr;
    CHECK_CUDA(cuCtxGetCurrent(&first));
    std::thread([] {
      CudaContext* other = nullptr;
      CHECK_CUDA(cuCtxGetCurrent(&other));
      CHECK(!other);
    }).join();
    CHECK_CUDA(cuDevicePrimaryCtxRetain(&second, 1));
    CHECK_CUDA(cuCtxPushCurrent_v2(second));
    CudaDevice device = -1;
    CHECK_CUDA(cuCtxGetDevice(&device));
    CHECK(device == 1 && second != first);
    CHECK_CUDA(cuCtxPopCurrent_v2(&now));
    CHECK(now == second);
    CHECK_CUDA(cuCtxGetCurrent(&now));
    CHECK(now == first);
    unsigned flags = 0;
    int active = -1;
    CHECK_CUDA(cuDevicePrimaryCtxRelease_v2(1));
    CHECK_CUDA(cuDevicePrimaryCtxGetState(1, &flags, &active));
    CHECK(active == 0 && fake_gpu_misuses() == 0);
    CHECK(cuCtxPushCurrent_v2(second) != kOk);
    CHECK(cuDevicePrimaryCtxRelease_v2(1) == kNoContext);
    CHECK(fake_gpu_misuses() == 2);
  });
}

void pointers_say_what_they_are(void**) {
  in_child({}, [] {
    const Device device(1);
    const Array<int> memory(4);
    using Attribute = dsc::CudaPointerAttribute;
    Attribute which[] = {Attribute::memory_type, Attribute::is_managed, Attribute::device_ordinal};
    unsigned type = 9, managed = 9;
    int ordinal = 9;
    void* values[] = {&type, &managed, &ordinal};
    const auto ask = [&](CudaAddress address) {
      CHECK_CUDA(cuPointerGetAttributes(3, which, values, address));
    };
    ask(memory.address() + 4);
    CHECK(type == 2 && managed == 0 && ordinal == 1);
    ask(reinterpret_cast<CudaAddress>(&type));
    CHECK(type == 0 && managed == 0 && ordinal == 0);
    CudaAddress everywhere = 0;
    CHECK_CUDA(cuMemAllocManaged(&everywhere, 16, 1));
    ask(everywhere);
    CHECK(type == 2 && managed == 1);
    void* pinned = nullptr;
    CHECK_CUDA(cuMemHostAlloc(&pinned, 16, 0));
    ask(reinterpret_cast<CudaAddress>(pinned));
    CHECK(type == 1 && managed == 0);
    CHECK_CUDA(cuMemFreeHost(pinned));
    CHECK_CUDA(cuMemFree_v2(everywhere));
    CHECK(fake_gpu_misuses() == 0);
  });
}

void streams_keep_their_order(void**) {
  in_child({}, [] {
    const Device device(0);
    const Array<unsigned char> memory(4, 0);
    CudaStream* const other = make_stream(dsc::kCudaStreamNonBlocking);
    CudaEvent* const event = make_event();
    Gate gate(device.stream);
    CHECK_CUDA(cuMemsetD8Async(memory.address(), 1, 4, device.stream));
    CHECK_CUDA(cuEventRecord(event, device.stream));
    CHECK_CUDA(cuStreamWaitEvent(other, event, 0));
    CHECK_CUDA(cuMemsetD8Async(memory.address(), 2, 4, other));
    CHECK(cuEventQuery(event) == kNotReady && cuStreamQuery(other) == kNotReady);
    Gate second(device.stream);
    CHECK_CUDA(cuEventRecord(event, device.stream));  // `other` still waits for the first record
    gate.open();
    CHECK_CUDA(cuStreamSynchronize(other));
    CHECK(memory.holds(2) && cuEventQuery(event) == kNotReady);
    second.open();
    CHECK_CUDA(cuEventSynchronize(event));
    CHECK(cuEventQuery(event) == kOk && fake_gpu_misuses() == 0);
    CHECK_CUDA(cuStreamDestroy_v2(other));
    CHECK_CUDA(cuEventDestroy_v2(event));
  });
}

void the_legacy_stream_orders_blocking_ones(void**) {
  in_child({}, [] {
    const Device device(0);
    CudaStream* const blocking = make_stream(0);
    Gate first(blocking);
    CudaEvent* const event = make_event();
    CHECK_CUDA(cuEventRecord(event, nullptr));
    wait_a_little();
    CHECK(cuEventQuery(event) == kNotReady && done(device.stream));
    first.open();
    CHECK_CUDA(cuStreamSynchronize(nullptr));
    CHECK_CUDA(cuEventQuery(event));
    Gate second(nullptr);
    CHECK_CUDA(cuEventRecord(event, blocking));
    wait_a_little();
    CHECK(cuEventQuery(event) == kNotReady);
    second.open();
    CHECK_CUDA(cuCtxSynchronize());
    CHECK_CUDA(cuEventQuery(event));
    const Array<char> memory(4);
    CHECK_CUDA(cuMemsetD8Async(memory.address(), 1, 4, reinterpret_cast<CudaStream*>(2)));
    CHECK_CUDA(cuCtxSynchronize());
    CHECK(memory.holds(1) && fake_gpu_misuses() == 0);
  });
}

void pageable_memory_is_copied_at_once(void**) {
  in_child({}, [] {
    const Device device(0);
    const Array<int> memory(1000, 0);
    std::vector<int> host(1000, 7);
    Gate gate(device.stream);
    CHECK_CUDA(cuMemcpyHtoDAsync_v2(memory.address(), host.data(), 4000, device.stream));
    host.assign(1000, 8);
    gate.open();
    CHECK_CUDA(cuMemcpyDtoHAsync_v2(host.data(), memory.address(), 4000, device.stream));
    CHECK(host == std::vector<int>(1000, 7));
  });
}

void add(void** params, const unsigned grid[3], const unsigned block[3]) {
  int* const memory = *static_cast<int**>(params[0]);
  const int amount = *static_cast<int*>(params[1]);
  for (unsigned i = 0; i < grid[0] * block[0]; ++i) memory[i] += amount;
}

// Runs memory += amount 64 times.
CudaResult launch_add(CudaStream* stream, const Array<int>& memory, int amount) {
  const size_t sizes[] = {8, 4};
  fake_cuda_register_kernel("add", add, 2, sizes);
  dsc::CudaModule* module = nullptr;
  dsc::CudaFunction* function = nullptr;
  CHECK_CUDA(cuModuleLoadData(&module, ".version 8.0"));
  CHECK(cuModuleGetFunction(&function, module, "no such kernel") == kNotFound);
  CHECK_CUDA(cuModuleGetFunction(&function, module, "add"));
  int* address = memory.data();
  void* params[] = {&address, &amount};
  return cuLaunchKernel(function, 2, 1, 1, 32, 1, 1, 0, stream, params, nullptr);
}

void kernels_run_with_parameters_of_the_launch(void**) {
  in_child({}, [] {
    const Device device(0);
    const Array<int> memory(64, 1);
    dsc::CudaModule* module = nullptr;
    CHECK(cuModuleLoadData(&module, "no image") == kNoImage);
    Gate gate(device.stream);
    CHECK_CUDA(launch_add(device.stream, memory, 4));
    // refused and counted as a misuse, because the kernel still uses the memory
    CHECK(cuMemFree_v2(memory.address()) != kOk && fake_gpu_misuses() == 1);
    gate.open();
    CHECK_CUDA(cuStreamSynchronize(device.stream));
    CHECK(memory.holds(5));
  });
}

struct Recorded {
  fake_gpu::CudaGraph* graph = nullptr;
  fake_gpu::CudaGraphExec* exec = nullptr;
};

void a_capture_is_replayed(void**) {
  in_child({}, [] {
    const Device device(0);
    const Array<int> memory(64, 0), copy(64, 0);
    CudaStream* const side = make_stream(dsc::kCudaStreamNonBlocking);
    CudaEvent *const fork = make_event(), *const join = make_event();
    dsc::CudaCaptureStatus status{};
    Recorded recorded;
    CHECK_CUDA(cuStreamBeginCapture_v2(device.stream, CudaCaptureMode::relaxed));
    CHECK_CUDA(launch_add(device.stream, memory, 1));
    CHECK_CUDA(cuEventRecord(fork, device.stream));
    CHECK_CUDA(cuStreamWaitEvent(side, fork, 0));
    CHECK_CUDA(cuStreamIsCapturing(side, &status));
    CHECK(status == dsc::CudaCaptureStatus::active);
    CHECK_CUDA(cuMemcpyAsync(copy.address(), memory.address(), 256, side));
    CHECK_CUDA(cuEventRecord(join, side));
    CHECK_CUDA(cuStreamWaitEvent(device.stream, join, 0));
    CHECK_CUDA(cuStreamEndCapture(device.stream, &recorded.graph));
    CHECK_CUDA(cuGraphInstantiateWithFlags(&recorded.exec, recorded.graph, 0));
    CHECK_CUDA(cuGraphDestroy(recorded.graph));
    CHECK(memory.holds(0) && done(side));
    for (int i = 1; i <= 3; ++i) {
      CHECK_CUDA(cuGraphLaunch(recorded.exec, device.stream));
      CHECK_CUDA(cuStreamSynchronize(device.stream));
      CHECK(memory.holds(i) && copy.holds(i));
    }
    CHECK_CUDA(cuGraphExecDestroy(recorded.exec));
    CHECK(fake_gpu_misuses() == 0);
  });
}

// A call that invalidates a capture fails, and the end of the capture fails too.
void expect_spoiled(CudaCaptureMode mode, CudaResult expected,
                    const std::function<CudaResult(CudaStream*)>& call) {
  in_child({}, [&] {
    const Device device(0);
    fake_gpu::CudaGraph* graph = nullptr;
    CHECK_CUDA(cuStreamBeginCapture_v2(device.stream, mode));
    CHECK(call(device.stream) == expected);
    CHECK(cuStreamEndCapture(device.stream, &graph) == (expected == kOk ? kOk : kInvalidated));
    CHECK(cuStreamEndCapture(device.stream, &graph) == kIllegalState);
    CHECK_CUDA(cuStreamSynchronize(device.stream));
  });
}

CudaResult allocate(CudaStream*) {
  CudaAddress address = 0;
  const CudaResult result = cuMemAlloc_v2(&address, 8);
  if (result == kOk) CHECK_CUDA(cuMemFree_v2(address));
  return result;
}

CudaResult query_captured(CudaStream* stream) {
  CudaEvent* const event = make_event();
  CHECK_CUDA(cuEventRecord(event, stream));
  return cuEventQuery(event);
}

CudaResult allocate_elsewhere(CudaStream* stream) {
  CudaContext* context = nullptr;
  CHECK_CUDA(cuCtxGetCurrent(&context));
  return std::async([=] {
           CHECK_CUDA(cuCtxPushCurrent_v2(context));
           return allocate(stream);
         })
      .get();
}

CudaResult allocate_relaxed(CudaStream* stream) {
  CudaCaptureMode mode = CudaCaptureMode::relaxed;
  CHECK_CUDA(cuThreadExchangeStreamCaptureMode(&mode));
  CHECK(mode == CudaCaptureMode::global);
  const CudaResult result = allocate(stream);
  CHECK_CUDA(cuThreadExchangeStreamCaptureMode(&mode));
  return result;
}

CudaResult use_legacy_stream(CudaStream* stream) {
  CudaStream* const blocking = make_stream(0);
  CudaEvent* const event = make_event();
  CHECK_CUDA(cuEventRecord(event, stream));
  CHECK_CUDA(cuStreamWaitEvent(blocking, event, 0));
  return cuEventRecord(make_event(), nullptr);
}

void what_spoils_a_capture_fails(void**) {
  expect_spoiled(CudaCaptureMode::global, kUnsupported, allocate);
  expect_spoiled(CudaCaptureMode::global, kUnsupported, allocate_elsewhere);
  expect_spoiled(CudaCaptureMode::global, kOk, allocate_relaxed);
  expect_spoiled(CudaCaptureMode::thread_local_only, kUnsupported, allocate);
  expect_spoiled(CudaCaptureMode::thread_local_only, kOk, allocate_elsewhere);
  expect_spoiled(CudaCaptureMode::relaxed, kOk, allocate);
  expect_spoiled(CudaCaptureMode::relaxed, kCapturedEvent, query_captured);
  expect_spoiled(CudaCaptureMode::relaxed, kUnsupported, cuStreamSynchronize);
  expect_spoiled(CudaCaptureMode::relaxed, kImplicit, use_legacy_stream);
}

void a_capture_comes_together_at_its_end(void**) {
  in_child({}, [] {
    const Device device(0);
    const Array<char> memory(1);
    CudaStream* const side = make_stream(dsc::kCudaStreamNonBlocking);
    CudaEvent* const fork = make_event();
    fake_gpu::CudaGraph* graph = nullptr;
    CHECK_CUDA(cuStreamBeginCapture_v2(device.stream, CudaCaptureMode::relaxed));
    CHECK_CUDA(cuEventRecord(fork, device.stream));
    CHECK_CUDA(cuStreamWaitEvent(side, fork, 0));
    CHECK_CUDA(cuMemsetD8Async(memory.address(), 0, 1, side));
    CHECK(cuStreamEndCapture(device.stream, &graph) == kUnjoined);
    CHECK(done(side));
  });
}

void expect_misuse(const std::function<CudaResult(CudaStream*)>& call, const char* words) {
  in_child({}, [&] {
    const Device device(0);
    CudaResult result{};
    const std::string text = complaints_of([&] { result = call(device.stream); });
    if (text.find(words) == std::string::npos) std::fprintf(stderr, "got: %s\n", text.c_str());
    CHECK(text.starts_with("fake CUDA misuse: ") && text.find(words) != std::string::npos);
    CHECK(result != kOk && fake_gpu_misuses() == 1);
  });
}

void misuse_is_seen(void**) {
  expect_misuse(
      [](CudaStream*) {
        CudaStream* const gone = make_stream(0);
        CHECK_CUDA(cuStreamDestroy_v2(gone));
        return cuStreamSynchronize(gone);
      },
      "no stream (any more)");
  expect_misuse(
      [](CudaStream* stream) {
        CudaEvent* const gone = make_event();
        CHECK_CUDA(cuEventDestroy_v2(gone));
        return cuEventRecord(gone, stream);
      },
      "no event (any more)");
  expect_misuse(
      [](CudaStream*) {
        CudaAddress address = 0;
        CHECK_CUDA(cuMemAlloc_v2(&address, 8));
        CHECK_CUDA(cuMemFree_v2(address));
        return cuMemFree_v2(address);
      },
      "not allocated (any more)");
  expect_misuse(
      [](CudaStream* stream) {
        CudaAddress address = 0;
        CHECK_CUDA(cuMemAlloc_v2(&address, 8));
        CHECK_CUDA(cuMemFree_v2(address));
        return cuMemsetD8Async(address, 0, 8, stream);
      },
      "was freed");
  expect_misuse(
      [](CudaStream* stream) { return cuMemsetD8Async(Array<char>(8).address() + 4, 0, 8, stream); },
      "past the end");
  expect_misuse(
      [](CudaStream* stream) {
        Recorded recorded;
        CudaAddress address = 0;
        CHECK_CUDA(cuMemAlloc_v2(&address, 8));
        CHECK_CUDA(cuStreamBeginCapture_v2(stream, CudaCaptureMode::relaxed));
        CHECK_CUDA(cuMemsetD8Async(address, 0, 8, stream));
        CHECK_CUDA(cuStreamEndCapture(stream, &recorded.graph));
        CHECK_CUDA(cuGraphInstantiateWithFlags(&recorded.exec, recorded.graph, 0));
        CHECK_CUDA(cuMemFree_v2(address));
        return cuGraphLaunch(recorded.exec, stream);
      },
      "was freed");
  expect_misuse(
      [](CudaStream* stream) {
        const Device other(1);
        return cuEventRecord(make_event(), stream);
      },
      "one device's event on another's stream");
  expect_misuse(
      [](CudaStream* stream) {
        const Device other(1);
        return launch_add(stream, Array<int>(64), 1);
      },
      "different devices");
  expect_misuse(
      [](CudaStream* stream) {
        static CudaResult inside{};
        CHECK_CUDA(cuLaunchHostFunc(
            stream, [](void*) { inside = cuCtxSynchronize(); }, nullptr));
        CHECK_CUDA(cuStreamSynchronize(stream));
        return inside;
      },
      "in a host function");
}

void an_asynchronous_failure_is_for_ever(void**) {
  in_child({{"FAKE_CUDA_STICKY_AT", "3"}}, [] {
    const Device device(0);
    const Array<int> one(4, 1), other(4, 2);  // their constructors make two copies
    Gate gate(device.stream);
    CHECK_CUDA(cuMemcpyAsync(one.address(), other.address(), 16, device.stream));
    gate.open();
    CHECK(cuStreamSynchronize(device.stream) == kBadAddress);
    CHECK(allocate(nullptr) == kBadAddress && cuCtxSynchronize() == kBadAddress);
    CHECK(*one.data() == 1);
  });
}

void leaving_with_work_pending_does_not_hang(void**) {
  in_child({}, [] {
    static auto* const device = new Device(0);
    static auto* const gate = new Gate(device->stream);
    CHECK(cuStreamQuery(device->stream) == kNotReady && gate);
    std::exit(0);
  });
}

void a_forked_child_cannot_use_it(void**) {
  in_child({}, [] {
    const Device device(0);
    const pid_t child = ::fork();
    if (child == 0) ::_exit(cuStreamSynchronize(device.stream) == CudaResult::not_initialized ? 0 : 1);
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child && status == 0);
  });
}

void small_work_is_quick(void**) {
  in_child({}, [] {
    const Device device(0);
    const Array<char> memory(8);
    CudaStream* const other = make_stream(dsc::kCudaStreamNonBlocking);
    CudaEvent* const event = make_event();
    for (int i = 0; i < 10'000; ++i) {
      CudaStream *const first = i % 2 ? other : device.stream, *const second = i % 2 ? device.stream : other;
      CHECK_CUDA(cuMemsetD8Async(memory.address(), static_cast<unsigned char>(i % 100), 8, first));
      CHECK_CUDA(cuEventRecord(event, first));
      CHECK_CUDA(cuStreamWaitEvent(second, event, 0));
    }
    CHECK_CUDA(cuStreamSynchronize(device.stream));
    CHECK_CUDA(cuStreamSynchronize(other));
    CHECK(memory.holds(99));
  });
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(nothing_is_missing),
      cmocka_unit_test(nothing_works_before_init),
      cmocka_unit_test(its_start_can_take_long),
      cmocka_unit_test(memory_can_be_short),
      cmocka_unit_test(contexts_are_a_stack_of_each_thread),
      cmocka_unit_test(pointers_say_what_they_are),
      cmocka_unit_test(streams_keep_their_order),
      cmocka_unit_test(the_legacy_stream_orders_blocking_ones),
      cmocka_unit_test(pageable_memory_is_copied_at_once),
      cmocka_unit_test(kernels_run_with_parameters_of_the_launch),
      cmocka_unit_test(a_capture_is_replayed),
      cmocka_unit_test(what_spoils_a_capture_fails),
      cmocka_unit_test(a_capture_comes_together_at_its_end),
      cmocka_unit_test(misuse_is_seen),
      cmocka_unit_test(an_asynchronous_failure_is_for_ever),
      cmocka_unit_test(leaving_with_work_pending_does_not_hang),
      cmocka_unit_test(a_forked_child_cannot_use_it),
      cmocka_unit_test(small_work_is_quick),
  };
  return cmocka_run_group_tests_name("fake_gpu", tests, nullptr, nullptr);
}
