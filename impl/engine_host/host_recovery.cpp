// Recovery after a failure: the ranks that are still alive can agree on flags, and form a new group.
#include <algorithm>
#include <bit>
#include <cstdio>

#include "base/error.hpp"
#include "base/guard.hpp"
#include "comm/describe.hpp"
#include "comm/group_ids.hpp"
#include "comm/groups.hpp"
#include "engine_host/host_engine.hpp"
#include "engine_host/progress.hpp"

namespace dsc {
namespace {

// Distinguishes ids of shrunk groups from those of other groups.
constexpr uint64_t kShrunkIds = uint64_t{1} << 63;
constexpr int32_t kMapped = 1;
constexpr int kMostNumber = 31;

Ballot make_ballot(Question question, int32_t flags) noexcept {
  Ballot ballot{};
  ballot.question = question;
  ballot.flags = flags;
  return ballot;
}

// True for failures after which another round without the lost ranks can succeed.
bool is_loss(dsc_result_t code) noexcept {
  return code == DSC_ERR_PEER_DEAD || code == DSC_ERR_PEER_LEFT || code == DSC_ERR_PEER_STALLED ||
         code == DSC_ERR_TIMEOUT;
}

// Encodes a number so that the bitwise AND of several words encodes the largest of their numbers. Numbers
// above kMostNumber count as kMostNumber.
int32_t word_of_number(int number) noexcept {
  return static_cast<int32_t>(~uint32_t{0} << std::min(number, kMostNumber));
}
int number_in_word(int32_t word) noexcept {
  return std::min(std::countr_zero(static_cast<uint32_t>(word)), kMostNumber);
}

}  // namespace

// A running call of agree_on() or shrink(). While it exists, the communicator is not idle.
struct HostEngine::Recovery {
  Recovery(HostEngine& of, const char* operation) : engine(of), name(operation) { engine.begin(); }
  ~Recovery() { engine.end(); }
  // True if this rank no longer takes part.
  bool is_off() const noexcept {
    return engine.state.has_left_or_finalizes() || engine.state.aborts() != aborts;
  }
  Recovery(const Recovery&) = delete;
  Recovery& operator=(const Recovery&) = delete;

  HostEngine& engine;
  const char* const name;
  const int64_t start_ns = now_ns();
  const Deadline deadline = Deadline::after_ms(engine.timeout_ms());
  const uint64_t aborts = engine.state.aborts();
};

namespace {

std::string describe_outcome(const Group& group, const Decision& decision,
                             const std::vector<int32_t>& named) {
  if (!decision.text.empty()) return decision.text;
  const std::string who = named.size() == 1 ? group.describe_member(named.front()).str() : list_ranks(named);
  if (decision.outcome == DSC_ERR_REVOKED) return who + " aborted the communicator";
  char text[48];
  std::snprintf(text, sizeof text, " did not arrive within %.1f s",
                static_cast<double>(decision.elapsed_ns) / kNsPerSecond);
  return who + text;
}

Failure failure_of(const Group& group, const Decision& decision, const char* operation) {
  Failure failure;
  failure.code = decision.outcome;
  const std::vector<int32_t> named = decision.named.list(group.size());
  failure.ranks = named;
  failure.set_group(group.id(), group.name());
  failure.sequence = decision.sequence;
  failure.elapsed_ns = decision.elapsed_ns;
  failure.operation = operation;
  failure.text = describe_outcome(group, decision, named);
  return failure;
}

// Returns the failure with which the group is revoked after ranks were given up. If such a rank runs again,
// it must not find the group usable.
Failure loss_of(const Group& group, const std::vector<int32_t>& lost) {
  Failure failure;
  failure.code = group.loss_of(lost.front());
  if (failure.code == DSC_OK) failure.code = DSC_ERR_PEER_STALLED;  // the rank was silent, but runs again now
  failure.ranks = lost;
  failure.text.add("%s no longer takes part", group.describe_member(lost.front()).c_str());
  return failure;
}

}  // namespace

// Makes one decision together with all ranks that are alive. If the decision is a failure, this throws on all
// of them.
Decision HostEngine::decide(const Ballot& ballot, const Recovery& call) {
  OtherQueues others(self_driven());
  Decision decision = consensus_.reach(ballot, {call.start_ns, collectives_.latest_sequence()}, call.deadline,
                                       [&] { return call.is_off(); },
                                       {[&] { return others.drive(); }, [&] { others.look_at_clock(); }});
  const std::vector<int32_t> lost = decision.lost.list(size());
  if (!lost.empty()) group_->revoke(loss_of(*group_, lost));
  const bool failed = decision.outcome != DSC_OK;
  state.set_missing(failed ? decision.named.list(size()) : lost);
  if (!failed) return decision;
  Failure failure = failure_of(*group_, decision, call.name);
  group_->revoke(failure);
  state.name_operation(failure, call.name, decision.sequence);
  throw Error(failure);
}

int32_t HostEngine::agree_on(int32_t flags) {
  const Recovery call(*this, "agree");
  consensus_.catch_up();
  return decide(make_ballot(Question::kAgree, flags), call).flags;
}

// Makes this rank's part of a group of the ranks that are alive, and maps the others' parts. The returned
// ballot says whether that succeeded; flags of 0 mean that another round may succeed.
Ballot HostEngine::map_survivors(const Decision& decision, std::string name, const GroupOptions& options,
                                 const Recovery& call, std::shared_ptr<HostEngine>& child) {
  Ballot ballot = make_ballot(Question::kMapped, kMapped);
  capture(
      [&] {
        std::vector<int32_t> survivors;
        for (int member = 0; member < size(); ++member)
          if (!decision.lost.contains(member)) survivors.push_back(group_->local_rank(member));
        const uint64_t id = mix_id(this->id(), kShrunkIds | decision.sequence);
        auto group = Group::create(group_->shared_host(), id, std::move(name), std::move(survivors));
        group->map_members(call.deadline, [&] {
          if (call.is_off() || consensus_.is_hopeless())
            fail(DSC_ERR_PEER_LEFT, "the surviving ranks have changed");
        });
        const int timeout = options.timeout_ms > 0 ? options.timeout_ms : timeout_ms();
        child = std::make_shared<HostEngine>(group, state.info(), timeout);
        child->state.nonfinite->set_check(state.nonfinite->check());
      },
      [&](dsc_result_t code, const char* text) {
        ballot.flags = 0;
        if (is_loss(code)) return;
        ballot.code = code;
        std::snprintf(ballot.text, sizeof ballot.text, "%.*s", static_cast<int>(sizeof ballot.text - 1),
                      text);
      });
  return ballot;
}

// Called when all ranks that are alive have mapped the child. From then on, no rank may undo the child.
void HostEngine::adopt(HostEngine& child) noexcept {
  child.group_->withdraw();
  child.replaces_world_ = id() == kWorldId || replaces_world_;
  child.shrinks_ = shrinks_;
}

// The ranks first agree which ranks are alive, and then whether all of them have mapped each other's memory.
// If a rank is lost between these two decisions, the next round excludes it.
std::shared_ptr<GroupEngine> HostEngine::shrink(const GroupOptions& options) {
  const Recovery call(*this, "shrink");
  consensus_.catch_up();
  Decision decision = decide(make_ballot(Question::kShrink, word_of_number(*shrinks_)), call);
  const int number = number_in_word(decision.flags) + 1;
  const std::string name =
      options.name.empty() ? shrunk_name(this->name(), number) : options.name.substr(0, kMostGroupNameBytes);
  for (;;) {
    std::shared_ptr<HostEngine> child;
    const Ballot mapped = map_survivors(decision, name, options, call, child);
    const MemberSet lost = decision.lost;
    decision = decide(mapped, call);
    if (decision.flags != kMapped || decision.lost != lost) continue;
    shrinks_->store(number);
    adopt(*child);
    return child;
  }
}

}  // namespace dsc
