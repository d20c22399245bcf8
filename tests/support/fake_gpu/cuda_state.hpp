// The state of the fake driver. One lock guards all of it. The work of streams runs without the lock. Handles
// are numbers that are never reused, so an invalid handle is always noticed.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "device/cuda_declarations.hpp"
#include "fake_gpu.h"

namespace fake_gpu {

using dsc::CudaAddress;
using dsc::CudaContext;
using dsc::CudaDevice;
using dsc::CudaEvent;
using dsc::CudaFunction;
using dsc::CudaModule;
using dsc::CudaResult;
using dsc::CudaStream;

inline constexpr CudaResult kOk{}, kInvalidValue{1}, kOutOfMemory{2}, kNotInitialized{3}, kNoDevice{100},
    kInvalidDevice{101}, kInvalidImage{200}, kInvalidContext{201}, kIllegalState{401}, kInvalidHandle{400},
    kNotFound{500}, kNotReady{600}, kIllegalAddress{700}, kContextDestroyed{709}, kNotPermitted{800},
    kNotSupported{801}, kCaptureUnsupported{900}, kCaptureInvalidated{901}, kCaptureMerge{902},
    kCaptureUnmatched{903}, kCaptureUnjoined{904}, kCaptureIsolation{905}, kCaptureImplicit{906},
    kCapturedEvent{907}, kCaptureWrongThread{908};

inline int number_of(const char* variable, int usual) {
  const char* const text = std::getenv(variable);
  return text ? std::atoi(text) : usual;
}

struct Range {
  uintptr_t begin = 0;
  size_t bytes = 0;
};

struct Stream;
struct Driver;

// A position in a stream: all work that was enqueued up to it.
struct Moment {
  std::shared_ptr<Stream> stream;
  uint64_t ticket = 0;
  bool passed() const;  // with the lock held, like wait()
  void wait(std::unique_lock<std::mutex>& lock) const;
};

// The work that a stream executes. Actions with the same order run one after another, on whatever streams
// they are.
struct Action {
  std::function<void()> run;
  std::vector<Range> uses;
  std::shared_ptr<Moment> order;
  // if true, the action no longer uses memory even if it has not run yet
  std::shared_ptr<std::atomic<bool>> over;
  // Returns an object that a graph with this action keeps until the graph and its copies are destroyed.
  std::function<std::shared_ptr<void>()> on_capture;
  std::shared_ptr<void> kept;
};

inline Action action_of(std::function<void()> run, std::vector<Range> uses) {
  Action action;
  action.run = std::move(run);
  action.uses = std::move(uses);
  return action;
}

struct Task {
  Action action;
  std::vector<Moment> after;
};

struct Context {
  CudaDevice device = 0;  // the device's number in this process
  int card = 0;           // the card's number on the machine
  int retained = 0;
  uint64_t life = 0;  // how often this context was destroyed
  std::shared_ptr<Stream> legacy;
};

struct Graph {
  struct Node {
    Action action;
    std::vector<size_t> after;
  };
  std::vector<Node> nodes;
};

struct GraphExec {
  std::vector<Action> actions;
  std::shared_ptr<Moment> last = std::make_shared<Moment>();
};

struct Capture {
  dsc::CudaCaptureMode mode;
  CudaStream* origin;
  uint64_t thread;
  bool invalidated = false, ended = false;
  Graph graph;
  std::vector<std::weak_ptr<Stream>> streams;
};

struct Stream {
  Context* context = nullptr;
  CudaStream* handle = nullptr;
  bool blocking = false;  // waits for the legacy stream, and the legacy stream waits for it
  bool closed = false;
  std::deque<Task> tasks;
  uint64_t issued = 0, finished = 0;
  std::condition_variable changed;
  std::shared_ptr<Capture> capture;
  std::vector<size_t> frontier;  // the captured nodes that the next node depends on
};

struct Event {
  Context* context = nullptr;
  std::optional<Moment> moment;
  std::shared_ptr<Capture> capture;
  std::vector<size_t> frontier;
};

struct Kernel {
  fake_cuda_kernel run = nullptr;
  std::vector<size_t> param_bytes;
};

struct Module {
  Context* context = nullptr;
};

struct Function {
  Context* context = nullptr;
  CudaModule* module = nullptr;
  Kernel kernel;
};

struct Block {
  size_t bytes = 0;
  int device = 0;
  dsc::CudaMemoryType kind{};
  bool managed = false;
  uint64_t id = 0;
};

// Handles of one kind. Each kind starts at a different number, so that handles of different kinds differ.
template <typename Object, typename Handle>
class Handles {
 public:
  explicit Handles(uintptr_t first) : next_(first) {}
  Handle* add(std::shared_ptr<Object> object) {
    next_ += 16;
    objects_[next_] = std::move(object);
    return reinterpret_cast<Handle*>(next_);
  }
  std::shared_ptr<Object> find(const Handle* handle) const {
    const auto found = objects_.find(reinterpret_cast<uintptr_t>(handle));
    return found == objects_.end() ? nullptr : found->second;
  }
  std::shared_ptr<Object> remove(const Handle* handle) {
    const std::shared_ptr<Object> object = find(handle);
    objects_.erase(reinterpret_cast<uintptr_t>(handle));
    return object;
  }
  template <typename Predicate>
  void remove_if(const Predicate& predicate) {
    std::erase_if(objects_, [&](const auto& entry) { return predicate(*entry.second); });
  }

 private:
  uintptr_t next_;
  std::map<uintptr_t, std::shared_ptr<Object>> objects_;
};

struct CudaGraph;
struct CudaGraphExec;

struct Driver {
  std::mutex lock;
  bool initialized = false;
  CudaResult dead{};  // the result of every call after a sticky error
  int sticky_at = 0, launches = 0;
  std::vector<std::unique_ptr<Context>> contexts;  // by device
  std::map<uintptr_t, Block> blocks;
  uint64_t blocks_made = 0;
  std::vector<std::weak_ptr<Stream>> all_streams;
  std::set<std::shared_ptr<Capture>> captures;
  std::map<std::string, Kernel> kernels;
  Handles<Stream, CudaStream> streams{0x5000000000};
  Handles<Event, CudaEvent> events{0x6000000000};
  Handles<Module, CudaModule> modules{0x7000000000};
  Handles<Function, CudaFunction> functions{0x8000000000};
  Handles<Graph, CudaGraph> graphs{0x9000000000};
  Handles<GraphExec, CudaGraphExec> execs{0xa000000000};
};

Driver& driver();  // never destroyed, because streams run until the process ends

// Prints one line on stderr and counts the misuse.
[[gnu::format(printf, 2, 3)]] void misuse(const char* fake, const char* format, ...);
[[gnu::format(printf, 2, 3)]] CudaResult misused(CudaResult result, const char* format, ...);

// What every call of the fake driver works with. The lock is held.
struct Call {
  Driver& driver;
  std::unique_lock<std::mutex>& lock;
  Context* context;  // the current context of the thread; null only if the call needs none
  const char* name;
};

// kNoCapture: the call is unsafe during a capture
enum Needs : unsigned { kNothing = 0, kCurrent = 1, kNoCapture = 2 };

CudaResult begin_call(Call& call, unsigned needs);
CudaResult refuse_at_once(const char* name);  // before the lock is taken

template <typename Body>
CudaResult enter(const char* name, unsigned needs, const Body& body) {
  if (const CudaResult refused = refuse_at_once(name); refused != kOk) return refused;
  std::unique_lock lock(driver().lock);
  Call call{driver(), lock, nullptr, name};
  const CudaResult refused = begin_call(call, needs);
  return refused == kOk ? body(call) : refused;
}

// ---- contexts
std::vector<Context*>& context_stack();
Context* current_context();

// ---- memory
struct MemoryLocation {
  uintptr_t base = 0;
  const Block* block = nullptr;  // null if it is not the driver's memory
};
MemoryLocation location_of(const Driver& driver, uintptr_t address);
// Succeeds if the range is inside one allocation, or is not the driver's memory.
CudaResult check_range(const Call& call, uintptr_t address, size_t bytes);
CudaResult allocate(Call& call, void** address, size_t bytes, int device, dsc::CudaMemoryType kind,
                    bool managed);
// Checks that the memory is of this kind and that no stream uses it.
CudaResult check_release(const Call& call, uintptr_t begin, dsc::CudaMemoryType kind);
CudaResult release(Call& call, void* address, dsc::CudaMemoryType kind);
void release_all(Driver& driver, int device);

// ---- streams
std::shared_ptr<Stream> make_stream(Driver& driver, Context* context, bool blocking);
// Returns the stream of a handle, also of 0, 1 and 2. Returns null after reporting an invalid handle.
std::shared_ptr<Stream> stream_of(Call& call, CudaStream* handle, Context* context);
// Waits until the streams of a context have done all their work.
void drain(Call& call, const Context& context);
// Enqueues an action on a stream, or adds it to the graph that the stream captures.
CudaResult enqueue(Call& call, const std::shared_ptr<Stream>& stream, Action action,
                   std::vector<Moment> after = {});
// Frees memory of a device on a stream's worker. If the context has been destroyed since `life`, it frees
// nothing.
void free_from_stream(CudaAddress address, const Context& context, uint64_t life);
// Like enqueue(), for launches and copies, which FAKE_CUDA_STICKY_AT counts.
CudaResult enqueue_counted(Call& call, const std::shared_ptr<Stream>& stream, Action action);
bool in_host_function();
bool in_forked_child();

// ---- capture
void invalidate(Capture& capture);
CudaResult refuse_capture(Call& call);  // refuses calls that are unsafe while any thread captures
CudaResult capture_action(Capture& capture, Stream& stream, Action action);
// Makes a stream wait for a captured event. The stream joins the capture if it captures nothing yet.
CudaResult join_capture(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Capture>& capture,
                        const std::vector<size_t>& frontier);
uint64_t this_thread();

}  // namespace fake_gpu
