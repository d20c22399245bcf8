#include "fake_comm.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/error.hpp"
#include "comm/memory.hpp"
#include "dtype/reduce.hpp"

namespace fake {
namespace {

std::atomic<int> refusals{0};
std::atomic<int> blocks{0};

}  // namespace

// One operation: what every rank asked for, and how it ended.
struct Meeting {
  std::vector<dsc::Call> calls;
  std::vector<bool> came;
  int arrived = 0;
  bool done = false;
  dsc::Failure failure;
  std::vector<std::shared_ptr<dsc::GroupEngine>> children;  // of a new group
};

struct Shared {
  Shared(int ranks, int timeout)
      : size(ranks),
        timeout_ms(timeout),
        next(static_cast<size_t>(ranks)),
        left(static_cast<size_t>(ranks)) {}

  const int size;
  const int timeout_ms;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<size_t, std::shared_ptr<Meeting>> meetings;
  std::vector<size_t> next;  // operation of each rank
  std::vector<bool> left;
  dsc::Failure failure;

  std::shared_ptr<Meeting> arrive(int rank, const dsc::Call& call);
  void leave(int rank);
  void check_departed(const Meeting& meeting);
  void execute(Meeting& meeting);
  void revoke(dsc_result_t code, int rank, const std::string& text);
};

namespace {

bool same(const dsc::Call& a, const dsc::Call& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.op == b.op && a.root == b.root && a.count == b.count &&
         a.prescale == b.prescale && a.tag == b.tag;
}

void compute(std::vector<dsc::Call>& calls) {
  const dsc::Call& first = calls[0];
  const size_t bytes = first.count * dsc::dtype_bytes(first.dtype);
  if (first.kind == dsc::OpKind::kAllReduce) {
    std::vector<const void*> sources;
    std::vector<void*> destinations;
    for (const dsc::Call& call : calls) {
      sources.push_back(call.send);
      destinations.push_back(call.recv);
    }
    const int n = static_cast<int>(calls.size());
    const dsc::ReduceSpec spec{first.dtype, first.op, n, first.prescale};
    dsc::reduce(spec, sources.data(), n, destinations.data(), n, first.count);
  } else if (first.kind == dsc::OpKind::kBroadcast) {
    const void* source = calls[static_cast<size_t>(first.root)].send;
    for (const dsc::Call& call : calls)
      if (call.recv != source && bytes > 0) std::memcpy(call.recv, source, bytes);
  } else if (first.kind == dsc::OpKind::kVerify || first.kind == dsc::OpKind::kSplit) {
    for (const dsc::Call& to : calls)
      for (size_t rank = 0; rank < calls.size(); ++rank)
        std::memcpy(static_cast<char*>(to.recv) + rank * bytes, calls[rank].send, bytes);
  }
}

class FakeWork final : public dsc::Work {
 public:
  FakeWork(std::shared_ptr<Shared> shared, std::shared_ptr<Meeting> meeting)
      : shared_(std::move(shared)), meeting_(std::move(meeting)) {}

  bool done() const noexcept override {
    const std::lock_guard lock(shared_->mutex);
    return meeting_->done;
  }

  void notify(std::shared_ptr<dsc::Countdown>) override { std::abort(); }  // no test makes sets of these

  bool wait(dsc::Deadline deadline) override {
    const auto operation_ends =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(shared_->timeout_ms);
    std::unique_lock lock(shared_->mutex);
    while (!meeting_->done) {
      if (deadline.passed()) return false;
      shared_->changed.wait_for(lock, std::chrono::milliseconds(1));
      if (!meeting_->done && std::chrono::steady_clock::now() > operation_ends)
        shared_->revoke(DSC_ERR_TIMEOUT, -1, "a rank did not come");
    }
    if (meeting_->failure.code != DSC_OK)
      dsc::fail(meeting_->failure.code, "%s", meeting_->failure.text.c_str());
    return true;
  }

  dsc::Failure failure() const override {
    const std::lock_guard lock(shared_->mutex);
    dsc::Failure failure = meeting_->failure;
    if (!meeting_->done) failure.code = DSC_IN_PROGRESS;
    return failure;
  }

  int event_fd() override { dsc::fail(DSC_ERR_UNSUPPORTED, "a fake has no descriptor"); }

 private:
  std::shared_ptr<Shared> shared_;
  std::shared_ptr<Meeting> meeting_;
};

std::vector<int32_t> every_rank(int size) {
  std::vector<int32_t> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

class FakeEngine final : public dsc::GroupEngine {
 public:
  FakeEngine(std::shared_ptr<Shared> shared, int rank)
      : GroupEngine({1, "fake", rank, every_rank(shared->size)}, {}, std::make_shared<dsc::WorldInfo>(),
                    shared->timeout_ms),
        shared_(std::move(shared)) {}
  ~FakeEngine() override { leave(); }

  int32_t backend() const noexcept override { return DSC_BACKEND_HOST; }
  bool checks_nonfinite() const noexcept override { return false; }

  void run(const dsc::Call& call) override { start(call)->wait(dsc::Deadline::never()); }

  std::shared_ptr<dsc::Work> start(const dsc::Call& call) override {
    if (refusals > 0 && refusals-- > 0) dsc::fail(DSC_ERR_NOMEM, "no memory for an operation");
    return std::make_shared<FakeWork>(shared_, shared_->arrive(rank(), call));
  }

  std::shared_ptr<dsc::GroupEngine> make_group(const dsc::NewGroup&) override {
    dsc::Call call;
    call.kind = dsc::OpKind::kCreateGroup;
    const auto meeting = shared_->arrive(rank(), call);
    FakeWork(shared_, meeting).wait(dsc::Deadline::never());
    const std::lock_guard lock(shared_->mutex);
    return std::move(meeting->children[static_cast<size_t>(rank())]);
  }

  int32_t agree_on(int32_t) override { dsc::fail(DSC_ERR_UNSUPPORTED, "a fake does not recover"); }
  std::shared_ptr<dsc::GroupEngine> shrink(const dsc::GroupOptions&) override {
    dsc::fail(DSC_ERR_UNSUPPORTED, "a fake does not recover");
  }

  void* allocate(size_t bytes) override {
    void* memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    std::memset(memory, 0, bytes);
    ++blocks;
    dsc::keep_memory(memory, bytes, std::shared_ptr<void>(memory, [](void* released) {
                       std::free(released);
                       --blocks;
                     }));
    return memory;
  }

  bool has_running() noexcept override { return false; }
  bool progress(dsc::Deadline) override { return true; }
  void restart_numbers() noexcept override {}
  void revoke(const dsc::Failure& cause) noexcept override {
    const std::lock_guard lock(shared_->mutex);
    shared_->revoke(cause.code, rank(), cause.text.str());
  }
  void leave_if_idle() noexcept override {}
  void leave() noexcept override {
    const std::lock_guard lock(shared_->mutex);
    shared_->leave(rank());
  }
  void finalize() override {}
  bool revoked() const noexcept override { return failure().revoked; }
  dsc::Failure failure() const override {
    const std::lock_guard lock(shared_->mutex);
    return shared_->failure;
  }

 private:
  const std::shared_ptr<Shared> shared_;
};

std::vector<std::shared_ptr<dsc::GroupEngine>> make_engines(int size, int timeout_ms) {
  const auto shared = std::make_shared<Shared>(size, timeout_ms);
  std::vector<std::shared_ptr<dsc::GroupEngine>> engines;
  for (int rank = 0; rank < size; ++rank) engines.push_back(std::make_shared<FakeEngine>(shared, rank));
  return engines;
}

}  // namespace

std::shared_ptr<Meeting> Shared::arrive(int rank, const dsc::Call& call) {
  const std::lock_guard lock(mutex);
  if (failure.code != DSC_OK) dsc::fail(DSC_ERR_REVOKED, "%s", failure.text.c_str());
  const size_t number = next[static_cast<size_t>(rank)]++;
  auto& meeting = meetings[number];
  if (!meeting) {
    meeting = std::make_shared<Meeting>();
    meeting->calls.resize(static_cast<size_t>(size));
    meeting->came.resize(static_cast<size_t>(size));
  }
  meeting->calls[static_cast<size_t>(rank)] = call;
  meeting->came[static_cast<size_t>(rank)] = true;
  const auto mine = meeting;
  ++meeting->arrived;
  check_departed(*mine);
  if (mine->arrived == size) execute(*mine);
  return mine;
}

void Shared::leave(int rank) {
  left[static_cast<size_t>(rank)] = true;
  for (const auto& [number, meeting] : meetings) check_departed(*meeting);
}

// A member that leaves fails the operations that it has not come to, and no others.
void Shared::check_departed(const Meeting& meeting) {
  if (meeting.done) return;
  for (size_t rank = 0; rank < left.size(); ++rank) {
    if (left[rank] && !meeting.came[rank])
      return revoke(DSC_ERR_PEER_LEFT, static_cast<int>(rank),
                    "rank " + std::to_string(rank) + " left the group");
  }
}

void Shared::execute(Meeting& meeting) {
  for (size_t rank = 1; rank < meeting.calls.size(); ++rank) {
    if (same(meeting.calls[rank], meeting.calls[0])) continue;
    std::string text = "rank 0 called \"";
    ((text += meeting.calls[0].note) += "\", rank ") += std::to_string(rank);
    ((text += " called \"") += meeting.calls[rank].note) += "\"";
    return revoke(DSC_ERR_MISMATCH, 0, text);
  }
  if (meeting.calls[0].kind == dsc::OpKind::kCreateGroup) {
    meeting.children = make_engines(size, timeout_ms);
  } else {
    compute(meeting.calls);
  }
  meeting.done = true;
  changed.notify_all();
}

void Shared::revoke(dsc_result_t code, int rank, const std::string& text) {
  if (failure.code == DSC_OK) {
    failure.code = code;
    failure.ranks = {rank};
    failure.revoked = true;
    failure.text = text;
  }
  for (const auto& [number, meeting] : meetings) {
    if (meeting->done) continue;
    meeting->done = true;
    meeting->failure = failure;
  }
  changed.notify_all();
}

std::vector<std::shared_ptr<dsc::Comm>> make_world(int size, int timeout_ms) {
  std::vector<std::shared_ptr<dsc::Comm>> comms;
  for (auto& engine : make_engines(size, timeout_ms))
    comms.push_back(std::make_shared<dsc::Comm>(dsc::Engines{std::move(engine), nullptr}));
  return comms;
}

void on_ranks(int size, const std::function<void(dsc::Comm&)>& body) {
  const auto comms = make_world(size);
  std::vector<std::thread> threads;
  for (const auto& comm : comms) threads.emplace_back([&body, &comm] { body(*comm); });
  for (std::thread& thread : threads) thread.join();
}

void refuse_starts(int count) { refusals = count; }

int live_blocks() { return blocks; }

}  // namespace fake
