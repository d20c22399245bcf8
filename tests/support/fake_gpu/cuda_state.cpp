// The beginning of every call of the fake driver.
#include "cuda_state.hpp"

#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "cuda_api.hpp"
#include "cuda_cards.hpp"

namespace fake_gpu {
namespace {

std::atomic<int> misuses{0};
std::atomic<bool> forked{false};

void say(const char* fake, const char* format, va_list arguments) {
  char text[400], line[500];
  std::vsnprintf(text, sizeof text, format, arguments);
  const int bytes = std::snprintf(line, sizeof line, "fake %s misuse: %s\n", fake, text);
  std::fwrite(line, 1, static_cast<size_t>(bytes), stderr);
  misuses.fetch_add(1);
}

}  // namespace

bool in_forked_child() { return forked; }

Driver& driver() {
  static Driver* const the_driver = new Driver;
  return *the_driver;
}

void misuse(const char* fake, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  say(fake, format, arguments);
  va_end(arguments);
}

CudaResult misused(CudaResult result, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  say("CUDA", format, arguments);
  va_end(arguments);
  return result;
}

std::vector<Context*>& context_stack() {
  thread_local std::vector<Context*> stack;
  return stack;
}

Context* current_context() { return context_stack().empty() ? nullptr : context_stack().back(); }

CudaResult refuse_at_once(const char* name) {
  if (forked) return kNotInitialized;
  if (in_host_function()) return misused(kNotPermitted, "%s in a host function", name);
  return kOk;
}

CudaResult begin_call(Call& call, unsigned needs) {
  if (!call.driver.initialized) return kNotInitialized;
  if (call.driver.dead != kOk) return call.driver.dead;
  call.context = current_context();
  if (needs & kCurrent) {
    if (!call.context) return kInvalidContext;
    if (call.context->retained == 0)
      return misused(kContextDestroyed, "%s in a context that nobody retains", call.name);
  }
  return needs & kNoCapture ? refuse_capture(call) : kOk;
}

uint64_t this_thread() {
  static std::atomic<uint64_t> threads{0};
  thread_local const uint64_t number = ++threads;
  return number;
}

}  // namespace fake_gpu

using namespace fake_gpu;

extern "C" {

int fake_gpu_misuses() { return misuses.load(); }

void fake_cuda_register_kernel(const char* name, fake_cuda_kernel run, size_t n_params,
                               const size_t* param_bytes) {
  const std::lock_guard lock(driver().lock);
  driver().kernels[name] = {run, {param_bytes, param_bytes + n_params}};
}

CudaResult cuInit(unsigned flags) {
  if (forked) return kNotInitialized;
  if (flags != 0) return kInvalidValue;
  if (const int hang_ms = number_of("FAKE_CUDA_INIT_HANG_MS", 0); hang_ms > 0) {
    const timespec nap{hang_ms / 1000, hang_ms % 1000 * 1'000'000L};
    ::nanosleep(&nap, nullptr);
  }
  if (const int result = number_of("FAKE_CUDA_INIT", 0); result != 0) return CudaResult(result);
  Driver& state = driver();
  const std::lock_guard lock(state.lock);
  if (state.initialized) return state.dead;
  const int cards = number_of("FAKE_CUDA_DEVICES", 2);
  const std::vector<int> visible = visible_cards(cards, std::getenv("CUDA_VISIBLE_DEVICES"));
  if (visible.empty() && cards > 0) return kNoDevice;
  for (const int card : visible) {
    state.contexts.push_back(std::make_unique<Context>());
    state.contexts.back()->device = static_cast<int>(state.contexts.size()) - 1;
    state.contexts.back()->card = card;
  }
  ::pthread_atfork(nullptr, nullptr, [] { forked = true; });
  state.sticky_at = number_of("FAKE_CUDA_STICKY_AT", 0);
  state.initialized = true;
  return kOk;
}

CudaResult cuDriverGetVersion(int* version) {
  *version = number_of("FAKE_CUDA_VERSION", 13000);
  return kOk;
}

// As in the toolkit's stub, error 34 has no name and no description.
static CudaResult words(CudaResult error, const char* words, const char** text) {
  *text = error == CudaResult{34} ? nullptr : words;
  return error == CudaResult{34} ? error : kOk;
}

CudaResult cuGetErrorName(CudaResult error, const char** name) {
  return words(error, "FAKE_CUDA_ERROR", name);
}

CudaResult cuGetErrorString(CudaResult error, const char** text) {
  return words(error, "the fake driver says so", text);
}

CudaResult cuDeviceGetCount(int* count) {
  return enter("cuDeviceGetCount", kNothing, [&](Call& call) {
    *count = static_cast<int>(call.driver.contexts.size());
    return kOk;
  });
}

static bool is_device(const Call& call, CudaDevice device) {
  return device >= 0 && static_cast<size_t>(device) < call.driver.contexts.size();
}

CudaResult cuDeviceGet(CudaDevice* device, int ordinal) {
  return enter("cuDeviceGet", kNothing, [&](Call& call) {
    if (!is_device(call, ordinal)) return kInvalidDevice;
    *device = ordinal;
    return kOk;
  });
}

CudaResult cuDeviceGetName(char* name, int bytes, CudaDevice device) {
  return enter("cuDeviceGetName", kNothing, [&](Call& call) {
    if (!is_device(call, device)) return kInvalidDevice;
    const int card = call.driver.contexts[static_cast<size_t>(device)]->card;
    std::snprintf(name, static_cast<size_t>(bytes), "fake device %d", card);
    return kOk;
  });
}

CudaResult cuDeviceGetUuid_v2(dsc::CudaUuid* uuid, CudaDevice device) {
  return enter("cuDeviceGetUuid", kNothing, [&](Call& call) {
    if (!uuid) return kInvalidValue;
    if (!is_device(call, device)) return kInvalidDevice;
    *uuid = uuid_of(call.driver.contexts[static_cast<size_t>(device)]->card);
    return kOk;
  });
}

CudaResult cuDeviceGetAttribute(int* value, dsc::CudaDeviceAttribute attribute, CudaDevice device) {
  return enter("cuDeviceGetAttribute", kNothing, [&](Call& call) {
    static const std::map<unsigned, int> kValues = {{1, 1024}, {10, 32}, {16, 4}, {41, 1}, {75, 9}, {76, 0}};
    if (!is_device(call, device)) return kInvalidDevice;
    const auto found = kValues.find(static_cast<unsigned>(attribute));
    if (found == kValues.end()) return kInvalidValue;
    *value = found->second;
    return kOk;
  });
}

CudaResult cuDevicePrimaryCtxRetain(CudaContext** context, CudaDevice device) {
  return enter("cuDevicePrimaryCtxRetain", kNothing, [&](Call& call) {
    if (!is_device(call, device)) return kInvalidDevice;
    Context& primary = *call.driver.contexts[static_cast<size_t>(device)];
    if (primary.retained++ == 0) primary.legacy = make_stream(call.driver, &primary, false);
    *context = reinterpret_cast<CudaContext*>(&primary);
    return kOk;
  });
}

static bool has_work(const Call& call, const Context& context) {
  for (const auto& weak : call.driver.all_streams)
    if (const auto stream = weak.lock(); stream && stream->context == &context && !stream->closed)
      if (!stream->tasks.empty()) return true;
  return false;
}

// Everything that was created in a context is destroyed with it.
static void destroy(Call& call, Context& context) {
  Driver& state = call.driver;
  for (const auto& weak : state.all_streams)
    if (const auto stream = weak.lock(); stream && stream->context == &context) {
      stream->closed = true;
      stream->changed.notify_all();
    }
  const auto belongs = [&](const auto& object) { return object.context == &context; };
  state.streams.remove_if(belongs);
  state.events.remove_if(belongs);
  state.modules.remove_if(belongs);
  state.functions.remove_if(belongs);
  release_all(state, context.device);
  ++context.life;
}

CudaResult cuDevicePrimaryCtxRelease_v2(CudaDevice device) {
  return enter("cuDevicePrimaryCtxRelease", kNothing, [&](Call& call) {
    if (!is_device(call, device)) return kInvalidDevice;
    Context& primary = *call.driver.contexts[static_cast<size_t>(device)];
    if (primary.retained == 0) return misused(kInvalidContext, "released more often than retained");
    if (primary.retained == 1 && has_work(call, primary))
      return misused(kIllegalState, "cuDevicePrimaryCtxRelease while streams have work");
    if (--primary.retained == 0) destroy(call, primary);
    return kOk;
  });
}

CudaResult cuDevicePrimaryCtxGetState(CudaDevice device, unsigned* flags, int* active) {
  return enter("cuDevicePrimaryCtxGetState", kNothing, [&](Call& call) {
    if (!is_device(call, device)) return kInvalidDevice;
    *flags = 0;
    *active = call.driver.contexts[static_cast<size_t>(device)]->retained > 0;
    return kOk;
  });
}

static Context* known_context(const Call& call, CudaContext* handle) {
  for (const auto& context : call.driver.contexts)
    if (reinterpret_cast<CudaContext*>(context.get()) == handle) return context.get();
  misuse("CUDA", "%s got what is no context", call.name);
  return nullptr;
}

CudaResult cuCtxGetCurrent(CudaContext** context) {
  return enter("cuCtxGetCurrent", kNothing, [&](Call& call) {
    *context = reinterpret_cast<CudaContext*>(call.context);
    return kOk;
  });
}

CudaResult cuCtxSetCurrent(CudaContext* handle) {
  return enter("cuCtxSetCurrent", kNothing, [&](Call& call) {
    Context* const context = handle ? known_context(call, handle) : nullptr;
    if (handle && !context) return kInvalidContext;
    if (!context_stack().empty()) context_stack().pop_back();
    if (context) context_stack().push_back(context);
    return kOk;
  });
}

CudaResult cuCtxPushCurrent_v2(CudaContext* handle) {
  return enter("cuCtxPushCurrent", kNothing, [&](Call& call) {
    Context* const context = known_context(call, handle);
    if (!context) return kInvalidContext;
    if (context->retained == 0)
      return misused(kContextDestroyed, "cuCtxPushCurrent of a context that nobody retains");
    context_stack().push_back(context);
    return kOk;
  });
}

CudaResult cuCtxPopCurrent_v2(CudaContext** context) {
  return enter("cuCtxPopCurrent", kNothing, [&](Call& call) {
    if (!call.context) return misused(kInvalidContext, "cuCtxPopCurrent without a context");
    if (context) *context = reinterpret_cast<CudaContext*>(call.context);
    context_stack().pop_back();
    return kOk;
  });
}

CudaResult cuCtxGetDevice(CudaDevice* device) {
  return enter("cuCtxGetDevice", kCurrent, [&](Call& call) {
    *device = call.context->device;
    return kOk;
  });
}

}  // extern "C"
