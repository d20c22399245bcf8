// A test-only engine for worlds of one rank. It shows what the seam asks of an engine: this file and two
// lines in a meson.build are all of it.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/engine.hpp"
#include "comm/groups.hpp"
#include "comm/local_move.hpp"
#include "comm/memory.hpp"
#include "comm/operation_work.hpp"
#include "control/group.hpp"
#include "engine_host/host_engine.hpp"
#include "session/engine_table.hpp"

namespace dsc {
namespace {

class LoopbackWork final : public OperationWork {
 public:
  LoopbackWork(const Call& call, uint64_t group, const std::optional<Failure>& ended)
      : OperationWork(call, group) {
    end(ended);
  }

 private:
  void await_end(Deadline) override {}
};

class LoopbackEngine final : public GroupEngine {
 public:
  // `host` is the engine of the world, which this one ends together with itself; null in other groups.
  LoopbackEngine(CommIdentity identity, const GroupEngine& parent, std::shared_ptr<GroupEngine> host)
      : GroupEngine(std::move(identity), parent.state.local(), parent.state.info(), parent.timeout_ms()),
        host_(std::move(host)) {}
  ~LoopbackEngine() override { leave(); }

  int32_t backend() const noexcept override { return DSC_BACKEND_HOST; }
  bool checks_nonfinite() const noexcept override { return true; }

  void run(const Call& call) override {
    if (const auto failure = perform(call)) throw Error(*failure);
  }
  std::shared_ptr<Work> start(const Call& call) override {
    return std::make_shared<LoopbackWork>(call, id(), perform(call));
  }

  void* allocate(size_t bytes) override {
    constexpr size_t kPage = 4096;
    void* const memory = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
    if (!memory) fail(DSC_ERR_NOMEM, "no memory for %zu bytes", bytes);
    std::memset(memory, 0, bytes);
    keep_memory(memory, bytes, std::shared_ptr<void>(memory, std::free));
    return memory;
  }

  bool has_running() noexcept override { return false; }
  void finalize() override {
    if (host_) host_->finalize();
    state.set_finalized();
  }
  bool progress(Deadline) override { return true; }
  void restart_numbers() noexcept override { numbers_.store(0); }

  void revoke(const Failure& cause) noexcept override {
    {
      MutexLock lock(mutex_);
      if (cause_.code != DSC_OK) return;
      cause_ = cause;
      cause_.revoked = true;
    }
    state.fail_channels(cause);
  }
  bool revoked() const noexcept override { return failure().code != DSC_OK; }
  Failure failure() const override {
    MutexLock lock(mutex_);
    return cause_;
  }
  void leave() noexcept override {
    if (!state.leave()) return;
    if (host_) host_->leave();
  }
  void leave_if_idle() noexcept override {}

  std::shared_ptr<GroupEngine> make_group(const NewGroup& wanted) override {
    if (wanted.members.empty()) return nullptr;
    auto made = child(wanted.id, wanted.name);
    made->state.set_timeout_ms(wanted.timeout_ms);
    return made;
  }
  int32_t agree_on(int32_t flags) override { return flags; }
  std::shared_ptr<GroupEngine> shrink(const GroupOptions& options) override {
    const int number = shrinks_->fetch_add(1) + 1;
    auto made = child(state.next_id(), options.name.empty() ? shrunk_name(name(), number) : options.name);
    made->shrinks_ = shrinks_;
    return made;
  }

 private:
  std::shared_ptr<LoopbackEngine> child(uint64_t id, std::string name) {
    return std::make_shared<LoopbackEngine>(CommIdentity{id, std::move(name), 0, state.global_ranks()}, *this,
                                            nullptr);
  }

  std::optional<Failure> perform(const Call& call) noexcept {
    const uint64_t number = comes_before_numbers(call.kind) ? 0 : numbers_.fetch_add(1) + 1;
    Failure ended;
    capture([&] { ended = attempt(call, number); },
            [&](const Error& error) {
              ended = error.failure();
              ended.ranks = {0};
              ended.revoked = ended.code == DSC_ERR_CALLBACK;
              if (ended.revoked) revoke(ended);
            });
    if (ended.code == DSC_OK) return std::nullopt;
    state.note_reported();
    ended.group = id();
    state.name_operation(ended, op_kind_name(call.kind), number);
    return ended;
  }

  Failure attempt(const Call& call, uint64_t number) {
    if (state.is_over() || revoked()) return state.refusal(failure());
    const Transfer transfer(call, 0, 1);
    const NonFinite found = move_locally(call, transfer);
    stats.add(call.kind, transfer.send_bytes, 0, 0);
    if (found.count == 0) return {};
    state.nonfinite->add(call.kind, number, found);
    Failure failure;
    if (call.nonfinite != NonFiniteCheck::kFail) return failure;
    failure.code = DSC_ERR_NONFINITE;
    failure.index = found.index;
    failure.ranks = {0};
    failure.text = "the input is a NaN or infinite";
    return failure;
  }

  const std::shared_ptr<GroupEngine> host_;
  std::atomic<uint64_t> numbers_{0};
  std::shared_ptr<std::atomic<int>> shrinks_ = std::make_shared<std::atomic<int>>(0);
  mutable Mutex mutex_;
  Failure cause_ DSC_GUARDED_BY(mutex_);
};

bool serves_one_rank(const JoinedWorld& joined) { return joined.local->size() == 1; }

std::shared_ptr<GroupEngine> open_loopback(JoinedWorld joined) {
  const CommState& local = joined.local->state;
  return std::make_shared<LoopbackEngine>(CommIdentity{local.id(), local.name(), 0, local.global_ranks()},
                                          *joined.local, joined.local);
}

}  // namespace

const GroupLibrary& added_group_library() noexcept {
  static constexpr GroupLibrary kLoopback{"loopback", serves_one_rank, open_loopback};
  return kLoopback;
}

}  // namespace dsc
