#include "join/join.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/agreement.hpp"
#include "comm/gather.hpp"
#include "comm/outcome.hpp"
#include "comm/verify.hpp"
#include "tensor_list/coalesced.hpp"

namespace dsc {
namespace {

constexpr uint64_t kStepTag = 0x6a6f696e;
constexpr uint64_t kCreateTag = kStepTag + 1;
constexpr uint64_t kSkewToWarnOf = 1000;

const char* step_text(int32_t step) {
  return step == static_cast<int32_t>(JoinStep::kIteration) ? "begins an iteration of"
                                                            : "synchronizes buffers of";
}

void check_reducer(const Comm& comm, size_t i, const Reducer& reducer, const JoinOptions& options) {
  const Comm& group = *reducer.group();
  if (group.size() != comm.size())
    fail(DSC_ERR_INVALID_ARG, "reducers[%zu] has %d ranks, expected %d, the ranks of the communicator", i,
         group.size(), comm.size());
  for (int rank = 0; rank < comm.size(); ++rank)
    if (group.global_rank(rank) != comm.global_rank(rank))
      fail(DSC_ERR_INVALID_ARG,
           "reducers[%zu] has rank %d of the world as its rank %d, expected rank %d of the world, as in the "
           "communicator",
           i, group.global_rank(rank), rank, comm.global_rank(rank));
  if (!options.divide_by_initial && reducer.average() == DSC_AVERAGE_POST)
    fail(DSC_ERR_UNSUPPORTED,
         "reducers[%zu] has average post, which divides by the number of all ranks; with "
         "options->divide_by_initial 0, expected pre, pytorch or none",
         i);
  reducer.expect_idle();
  reducer.expect_no_join();
}

}  // namespace

// What one rank is about to do. Ranks exchange this before every step.
struct Join::Word {
  int32_t step;      // JoinStep
  int32_t reducer;   // index in the list of reducers; -1 if the step is kEnded
  int32_t counting;  // 1 if the reducer counts in its next iteration how often tensors are marked ready
};

bool Join::is_active(const Word& word) noexcept {
  return word.step != static_cast<int32_t>(JoinStep::kEnded);
}

std::shared_ptr<Join> Join::create(Comm& comm, std::vector<std::shared_ptr<Reducer>> reducers,
                                   const JoinOptions& options) {
  // Checks on all ranks before anything else. If one rank's reducers are in a wrong state, the other ranks
  // get the error too instead of waiting.
  run_on_all(comm, OpKind::kVerify, kCreateTag, "join", [&] {
    if (reducers.empty()) fail(DSC_ERR_INVALID_ARG, "n_reducers is 0, expected 1 or more");
    for (size_t i = 0; i < reducers.size(); ++i) check_reducer(comm, i, *reducers[i], options);
  });
  verify_settings(comm,
                  std::vector<Setting>{{"n_reducers", std::to_string(reducers.size())},
                                       {"divide_by_initial", std::to_string(options.divide_by_initial)},
                                       {"throw_on_early_end", std::to_string(options.throw_on_early_end)}});
  auto join = std::make_shared<Join>(comm.split(0, comm.rank(), {"join", 0}), std::move(reducers), options);
  for (const auto& reducer : join->reducers_) reducer->set_join(join);
  return join;
}

Join::Join(std::shared_ptr<Comm> group, std::vector<std::shared_ptr<Reducer>> reducers,
           const JoinOptions& options)
    : group_(std::move(group)),
      reducers_(std::move(reducers)),
      options_(options),
      active_(static_cast<size_t>(group_->size()), true) {}

Join::~Join() { close(); }

void Join::detach() noexcept {
  for (const auto& reducer : reducers_) reducer->set_join({});
}

void Join::close() noexcept {
  detach();
  group_->leave();
}

void Join::interrupt() noexcept {
  if (exchanging_.load()) group_->abort();
}

std::vector<Join::Word> Join::exchange(int32_t reducer, JoinStep step) {
  Word mine{static_cast<int32_t>(step), reducer, 0};
  if (reducer >= 0) mine.counting = reducers_[static_cast<size_t>(reducer)]->counts_marks() ? 1 : 0;
  const FlagScope scope(exchanging_);
  auto words = gather_all(*group_, OpKind::kVerify, kStepTag, mine,
                          step == JoinStep::kEnded ? "out of batches" : "next step");
  for (size_t rank = 0; rank < words.size(); ++rank) active_[rank] = is_active(words[rank]);
  const auto first = std::ranges::find_if(words, is_active);
  for (size_t rank = 0; rank < words.size(); ++rank) {
    if (first == words.end() || !is_active(words[rank])) continue;
    if (words[rank].step == first->step && words[rank].reducer == first->reducer) continue;
    fail(DSC_ERR_MISMATCH,
         "ranks in a join took different steps: rank %d %s reducers[%d], rank %zu %s reducers[%d]",
         static_cast<int>(first - words.begin()), step_text(first->step), first->reducer, rank,
         step_text(words[rank].step), words[rank].reducer);
  }
  return words;
}

// Fails with the same result on all ranks, before any rank has begun the step.
void Join::check_early_end(const std::vector<Word>& words) const {
  std::vector<int> ended;
  bool counting = false;
  for (size_t rank = 0; rank < words.size(); ++rank) {
    if (!is_active(words[rank])) ended.push_back(static_cast<int>(rank));
    counting = counting || words[rank].counting != 0;
  }
  if (ended.empty() || ended.size() == words.size()) return;
  if (options_.throw_on_early_end)
    fail(DSC_ERR_STATE,
         "%s has no more batches while other ranks continue; with options->throw_on_early_end this is an "
         "error on all ranks",
         ranks_text(ended).c_str());
  if (counting)
    fail(DSC_ERR_STATE,
         "%s has no more batches before the first iteration of a reducer with static_graph, which all ranks "
         "must run",
         ranks_text(ended).c_str());
}

JoinParticipants Join::participants_of(const std::vector<Word>& words) const {
  const auto first = std::ranges::find_if(words, is_active);
  const auto active = static_cast<int>(std::ranges::count_if(words, is_active));
  return {active, options_.divide_by_initial ? group_->size() : active,
          static_cast<int>(first - words.begin())};
}

JoinParticipants Join::announce(const Reducer& reducer, JoinStep step) {
  const auto found =
      std::ranges::find_if(reducers_, [&](const auto& each) { return each.get() == &reducer; });
  const auto words = exchange(static_cast<int32_t>(found - reducers_.begin()), step);
  check_early_end(words);
  return participants_of(words);
}

void Join::shadow(const std::vector<Word>& words) {
  const JoinParticipants participants = participants_of(words);
  const Word& word = words[static_cast<size_t>(participants.first_rank)];
  Reducer& reducer = *reducers_[static_cast<size_t>(word.reducer)];
  const auto step = static_cast<JoinStep>(word.step);
  if (step == JoinStep::kIteration) return reducer.shadow_iteration(participants);
  shadow_buffers(reducer, participants, step);
}

int Join::finish(std::span<const Tensor> params) {
  if (is_over_) fail(DSC_ERR_STATE, "the join is already finished; create a new join");
  for (const auto& reducer : reducers_) reducer->expect_idle();
  for (uint64_t alone = 0;; ++alone) {
    const std::vector<bool> before = active_;
    const auto words = exchange(-1, JoinStep::kEnded);
    if (std::ranges::none_of(words, is_active)) {
      active_ = before;
      break;
    }
    check_early_end(words);
    shadow(words);
    if (alone == kSkewToWarnOf)
      log(DSC_LOG_LEVEL_WARN,
          "%s: rank %d ran out of batches %llu iterations ago, while other ranks continue",
          group_->name().c_str(), group_->rank(), static_cast<unsigned long long>(alone));
  }
  is_over_ = true;
  detach();
  int last = 0;
  for (int rank = 0; rank < group_->size(); ++rank)
    if (active_[static_cast<size_t>(rank)]) last = rank;
  broadcast_coalesced(*group_, params, last, 0);
  return last;
}

}  // namespace dsc
