#include "engine.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>

#include "base/error.hpp"
#include "comm/groups.hpp"
#include "comm/memory.hpp"
#include "comm/outcome.hpp"

namespace conformance {
namespace {

std::atomic<int> refusals{0};
std::atomic<int> blocks{0};

std::vector<int32_t> every_rank(size_t size) {
  std::vector<int32_t> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

dsc::LocalMembers members_of(const dsc::CommIdentity& identity, const dsc::GroupEngine* host) {
  return {host ? host->state.local().group : nullptr, every_rank(identity.global_ranks.size())};
}

std::shared_ptr<void> zeroed_memory(size_t bytes) {
  constexpr size_t kPage = 4096;
  void* const memory = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
  if (!memory) dsc::fail(DSC_ERR_NOMEM, "no memory for %zu bytes", bytes);
  std::memset(memory, 0, bytes);
  ++blocks;
  return {memory, [](void* released) {
            std::free(released);
            --blocks;
          }};
}

}  // namespace

Engine::Engine(dsc::CommIdentity identity, std::shared_ptr<SharedGroup> group, std::shared_ptr<RankLoad> load,
               std::shared_ptr<dsc::GroupEngine> host, std::shared_ptr<const dsc::WorldInfo> info,
               int timeout_ms)
    : GroupEngine(identity, members_of(identity, host.get()), std::move(info), timeout_ms),
      group_(std::move(group)),
      load_(std::move(load)),
      host_(std::move(host)) {}

// ---- operations

uint64_t Engine::next_sequence(const dsc::Call& call) {
  if (dsc::has_no_sequence(call.kind)) return 0;
  if (dsc::is_message(call.kind)) return ++messages_[{call.root, call.kind == dsc::OpKind::kSend}];
  return collectives_.fetch_add(1) + 1;
}

void Engine::run(const dsc::Call& call) {
  const auto work = group_->arrive(*this, call, true);
  work->wait(dsc::Deadline::never());
}

std::shared_ptr<dsc::Work> Engine::start(const dsc::Call& call) {
  if (refusals > 0 && refusals-- > 0) dsc::fail(DSC_ERR_NOMEM, "no memory for an operation");
  return group_->arrive(*this, call, false);
}

void* Engine::allocate(size_t bytes) {
  std::shared_ptr<void> memory;
  dsc::run_on_all(*this, dsc::OpKind::kMemAlloc, bytes, std::to_string(bytes) + " bytes",
                  [&] { memory = zeroed_memory(bytes); });
  dsc::keep_memory(memory.get(), bytes, memory);
  return memory.get();
}

bool Engine::progress(dsc::Deadline deadline) {
  std::unique_lock lock(group_->world->mutex);
  return group_->world->progress(*load_, deadline, lock);
}

bool progress_all(dsc::Deadline deadline) {
  bool idle = true;
  for (const auto& world : SharedWorld::all()) {
    std::unique_lock lock(world->mutex);
    idle &= world->progress(world->load_of_all(), deadline, lock);
  }
  return idle;
}

// ---- failure and end

void Engine::revoke(const dsc::Failure& cause) noexcept {
  group_->revoke(*this, cause);
  state.fail_channels(cause);
}

void Engine::leave() noexcept {
  if (!state.leave()) return;
  group_->leave(*this, false);
  if (host_) host_->leave();
}

void Engine::leave_if_idle() noexcept {
  group_->leave(*this, true);
  if (host_) host_->leave_if_idle();
}

void Engine::finalize() {
  group_->drain_messages(rank());
  dsc::Call barrier;
  barrier.kind = dsc::OpKind::kFinalize;
  run(barrier);
  if (host_) host_->finalize();
  state.set_finalized();
}

// ---- groups

std::shared_ptr<dsc::GroupEngine> Engine::make_group(const dsc::NewGroup& wanted) {
  dsc::run_on_all(*this, wanted.kind, wanted.tag, wanted.note, [] {});  // all ranks request the same
  auto host = host_ ? host_->make_group(wanted) : nullptr;
  const auto place = std::ranges::find(wanted.members, rank());
  if (place == wanted.members.end()) return nullptr;
  dsc::CommIdentity identity{wanted.id, wanted.name, static_cast<int>(place - wanted.members.begin()), {}};
  for (const int32_t member : wanted.members)
    identity.global_ranks.push_back(state.global_ranks()[static_cast<size_t>(member)]);
  const auto members = static_cast<int>(wanted.members.size());
  auto group = group_->world->join(wanted.id, members, members);
  return std::make_shared<Engine>(std::move(identity), std::move(group), load_, std::move(host), state.info(),
                                  wanted.timeout_ms);
}

dsc::Failure Engine::failure() const {
  dsc::Failure failure = group_->failure();
  failure.set_group(id(), name());
  return failure;
}

Decision Engine::decide(Question question, int32_t flags) {
  Decision decision = group_->decide(*this, {question, flags, shrinks_->load()});
  state.set_missing(decision.missing);
  if (decision.failure.code == DSC_OK) return decision;
  state.name_operation(decision.failure, name_of(question), 0);
  throw dsc::Error(decision.failure);
}

int32_t Engine::agree_on(int32_t flags) { return decide(Question::kAgree, flags).flags; }

std::shared_ptr<dsc::GroupEngine> Engine::shrink(const dsc::GroupOptions& options) {
  for (;;) {
    const Decision decision = decide(Question::kShrink, -1);
    dsc::CommIdentity identity{decision.rest->id, options.name, 0, {}};
    if (options.name.empty()) identity.name = dsc::shrunk_name(name(), decision.shrinks + 1);
    for (int member = 0; member < size(); ++member) {
      if (std::ranges::find(decision.missing, member) != decision.missing.end()) continue;
      if (member == rank()) identity.rank = static_cast<int>(identity.global_ranks.size());
      identity.global_ranks.push_back(state.global_ranks()[static_cast<size_t>(member)]);
    }
    auto host = host_ ? host_->shrink(options) : nullptr;
    // another rank has left meanwhile
    if (host && host->state.global_ranks() != identity.global_ranks) continue;
    shrinks_->store(decision.shrinks + 1);
    auto rest =
        std::make_shared<Engine>(std::move(identity), decision.rest, load_, std::move(host), state.info(),
                                 options.timeout_ms > 0 ? options.timeout_ms : timeout_ms());
    rest->shrinks_ = shrinks_;
    rest->state.nonfinite->set_check(state.nonfinite->check());
    return rest;
  }
}

// ---- worlds of tests

std::vector<std::shared_ptr<dsc::GroupEngine>> make_engines(int size, int timeout_ms) {
  const auto world = SharedWorld::make(true);
  const auto info = std::make_shared<dsc::WorldInfo>();
  std::vector<std::shared_ptr<dsc::GroupEngine>> engines;
  for (int rank = 0; rank < size; ++rank) {
    dsc::CommIdentity identity{1, "world", rank, every_rank(static_cast<size_t>(size))};
    engines.push_back(std::make_shared<Engine>(std::move(identity), world->join(1, size, size),
                                               std::make_shared<RankLoad>(), nullptr, info, timeout_ms));
  }
  return engines;
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

}  // namespace conformance
