#include "pipeline/catalog.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "base/edit_distance.hpp"
#include "base/error.hpp"
#include "base/joined.hpp"
#include "pipeline/best_plan.hpp"
#include "pipeline/closed_form.hpp"
#include "pipeline/imported.hpp"
#include "pipeline/lower.hpp"
#include "pipeline/orders.hpp"
#include "pipeline/pattern_order.hpp"

namespace dsc {
namespace {

using OrderMaker = std::shared_ptr<const ComputeOrder> (*)(const ScheduleSpec&);

// Applies two options of the spec to an order: forward_only removes the backward passes, and merge_backward
// merges the halves of each backward pass. A PatternOrder stays a PatternOrder when its backward passes are
// removed, which avoids listing every operation.
template <typename Order>
std::shared_ptr<const ComputeOrder> of_passes(Order order, const ScheduleSpec& spec) {
  if constexpr (requires { order->only_forward(); })
    if (spec.forward_only) return order->only_forward();
  if (spec.forward_only) return only_forward(*order, spec.stages);
  if (spec.merge_backward) return merged(*order, spec.stages);
  return order;
}

std::shared_ptr<const ComputeOrder> gpipe(const ScheduleSpec& s) {
  return of_passes(gpipe_order(s.stages, s.micro_batches), s);
}
std::shared_ptr<const ComputeOrder> one_f_one_b(const ScheduleSpec& s) {
  return of_passes(one_f_one_b_order(s.stages, s.micro_batches), s);
}
std::shared_ptr<const ComputeOrder> interleaved(const ScheduleSpec& s) {
  return of_passes(interleaved_order(s.stages, s.micro_batches, s.chunks, s.micro_batch_group), s);
}
std::shared_ptr<const ComputeOrder> looped_bfs(const ScheduleSpec& s) {
  return of_passes(looped_bfs_order(s.stages, s.micro_batches, s.chunks), s);
}
std::shared_ptr<const ComputeOrder> zb_h1(const ScheduleSpec& s) {
  return of_passes(zb_h1_order(s.stages, s.micro_batches), s);
}
std::shared_ptr<const ComputeOrder> zb_h2(const ScheduleSpec& s) {
  return of_passes(zb_h2_order(s.stages, s.micro_batches), s);
}
std::shared_ptr<const ComputeOrder> zb_v(const ScheduleSpec& s) {
  return of_passes(zb_v_order(s.stages, s.micro_batches), s);
}
std::shared_ptr<const ComputeOrder> v_half(const ScheduleSpec& s) {
  return of_passes(building_block_order(BuildingBlock::kHalf, s.stages, s.micro_batches), s);
}
std::shared_ptr<const ComputeOrder> v_min(const ScheduleSpec& s) {
  return of_passes(building_block_order(BuildingBlock::kMin, s.stages, s.micro_batches), s);
}
std::shared_ptr<const ComputeOrder> dualpipe_v(const ScheduleSpec& s) {
  return of_passes(dualpipe_v_order(s.stages, s.micro_batches), s);
}
std::shared_ptr<const ComputeOrder> forward_passes(const ScheduleSpec& s) {
  return gpipe_order(s.stages, s.micro_batches)->only_forward();
}
std::shared_ptr<const ComputeOrder> passes_in_turn(const ScheduleSpec& s) {
  return in_turn_order(s.stages, s.micro_batches);
}

// A named schedule and the numbers of chunks that it supports.
struct Entry {
  std::string_view name;
  int32_t fewest_chunks, most_chunks, default_chunks;
  PlacementShape shape;
  OrderMaker order;
  // Computes the instructions directly; null if they are lowered from the order.
  ClosedForm closed_form = nullptr;
  // True if the order stores every operation instead of repeated patterns.
  bool is_listed = false;
};

constexpr std::string_view kAuto = "auto";  // selects a search for the best order
constexpr int32_t kAny = INT32_MAX;
constexpr std::array kEntries{
    Entry{"deepspeed_train", 1, 1, 1, PlacementShape::kLoop, one_f_one_b, deepspeed_train},
    Entry{"deepspeed_inference", 1, 1, 1, PlacementShape::kLoop, forward_passes, deepspeed_inference},
    Entry{"data_parallel", 1, 1, 1, PlacementShape::kApart, passes_in_turn, data_parallel},
    Entry{"gpipe", 1, 1, 1, PlacementShape::kLoop, gpipe},
    Entry{"1f1b", 1, 1, 1, PlacementShape::kLoop, one_f_one_b},
    Entry{"interleaved_1f1b", 1, kAny, 2, PlacementShape::kLoop, interleaved},
    Entry{"looped_bfs", 1, kAny, 2, PlacementShape::kLoop, looped_bfs},
    Entry{"zb_h1", 1, 1, 1, PlacementShape::kLoop, zb_h1},
    Entry{"zb_h2", 1, 1, 1, PlacementShape::kLoop, zb_h2},
    Entry{"zb_v", 2, 2, 2, PlacementShape::kZigZag, zb_v},
    Entry{"v_half", 2, 2, 2, PlacementShape::kZigZag, v_half, nullptr, true},
    Entry{"v_min", 2, 2, 2, PlacementShape::kZigZag, v_min, nullptr, true},
    Entry{"dualpipe_v", 2, 2, 2, PlacementShape::kZigZag, dualpipe_v}};

// Limit on parts times micro-batches for orders that store every operation. Each operation takes 16 bytes,
// and there are up to 6 operations per part and micro-batch.
constexpr int64_t kMostListed = int64_t{1} << 21;

// Fails with a message that lists the valid names, the most similar one first.
[[noreturn]] void refuse_name(std::string_view name) {
  constexpr size_t kShown = 32;
  const std::string_view shown = name.substr(0, kShown);
  if (name == "custom")
    fail(DSC_ERR_INVALID_ARG,
         "schedule \"custom\" needs a list of operations for each stage; use "
         "dsc_pipe_schedule_create_custom() or dsc_pipe_schedule_import()");
  std::vector<std::string_view> known{kAuto};
  for (const Entry& entry : kEntries) known.push_back(entry.name);
  std::ranges::stable_sort(known, {}, [&](std::string_view one) { return edit_distance(shown, one); });
  fail(DSC_ERR_INVALID_ARG, "unknown schedule \"%.*s\"; did you mean \"%.*s\"? Known schedules: %s",
       static_cast<int>(shown.size()), shown.data(), static_cast<int>(known[0].size()), known[0].data(),
       joined(known, ", ").c_str());
}

const Entry& entry_of(std::string_view name) {
  const auto found = std::ranges::find(kEntries, name, &Entry::name);
  if (found == kEntries.end()) refuse_name(name);
  return *found;
}

void check_numbers(const ScheduleSpec& spec) {
  if (spec.stages < 1) fail(DSC_ERR_INVALID_ARG, "options->stages is %d, expected 1 or more", spec.stages);
  if (spec.micro_batches < 1)
    fail(DSC_ERR_INVALID_ARG, "options->micro_batches is %d, expected 1 or more", spec.micro_batches);
}

void check_chunks(const ScheduleSpec& spec, const Entry& entry) {
  if (spec.chunks >= entry.fewest_chunks && spec.chunks <= entry.most_chunks) return;
  if (entry.most_chunks == kAny)
    fail(DSC_ERR_INVALID_ARG, "options->chunks is %d, expected 1 or more", spec.chunks);
  fail(DSC_ERR_INVALID_ARG, "options->chunks is %d, expected %d for schedule \"%s\"", spec.chunks,
       entry.most_chunks, spec.name.c_str());
}

void check_options(const ScheduleSpec& spec, const Entry& entry) {
  const char* name = spec.name.c_str();
  if (spec.forward_only && entry.closed_form && entry.order != forward_passes)
    fail(DSC_ERR_INVALID_ARG,
         "options->forward_only is 1, expected 0 for schedule \"%s\"; for forward passes only, use schedule "
         "\"deepspeed_inference\"",
         name);
  if (spec.messages != PipeMessages::kWhenNeeded && entry.closed_form)
    fail(DSC_ERR_INVALID_ARG,
         "options->messages is %d, expected 0: schedule \"%s\" places its messages itself",
         static_cast<int>(spec.messages), name);
  if (spec.micro_batch_group != 0 && spec.name != "interleaved_1f1b")
    fail(DSC_ERR_INVALID_ARG, "options->micro_batch_group is %d, expected 0 for schedule \"%s\"",
         spec.micro_batch_group, name);
}

int64_t most_of(const Entry& entry, const ScheduleSpec& spec) {
  const bool is_listed = entry.is_listed || (spec.merge_backward && !entry.closed_form);
  return is_listed ? kMostListed : kMostPlanned;
}

// Returns the number of parts of the model times the number of micro-batches, or INT64_MAX if it overflows.
int64_t passes_of(const ScheduleSpec& spec) {
  int64_t passes = int64_t{spec.stages} * spec.chunks;
  return __builtin_mul_overflow(passes, spec.micro_batches, &passes) ? INT64_MAX : passes;
}

[[noreturn]] void refuse_size(const ScheduleSpec& spec, int64_t most) {
  if (spec.stages > kMostStages)
    fail(DSC_ERR_OVERFLOW, "options->stages is %d, expected at most %d", spec.stages, kMostStages);
  fail(DSC_ERR_OVERFLOW, "%d stages x %d chunks x %d micro-batches, expected a product of at most %lld",
       spec.stages, spec.chunks, spec.micro_batches, static_cast<long long>(most));
}

// With fewer than 2 * stages - 1 micro-batches, zb_v is made from its order for 2 * stages - 1 micro-batches.
// That order must not be too large.
void check_short_zb_v(ScheduleSpec spec) {
  const int32_t given = spec.micro_batches;
  spec.micro_batches = 2 * spec.stages - 1;
  if (passes_of(spec) > 4 * kMostListed)
    fail(DSC_ERR_OVERFLOW,
         "options->stages is %d and options->micro_batches is %d, expected fewer stages, or %d micro-batches "
         "or more (2 x stages - 1)",
         spec.stages, given, spec.micro_batches);
}

// Megatron's rule for groups of micro-batches: a last group that is smaller than the number of stages would
// leave the pipeline idle.
void check_group(const ScheduleSpec& spec) {
  const int32_t group = spec.micro_batch_group;
  const int32_t least = std::min(spec.stages, spec.micro_batches);
  if (group < least || group > spec.micro_batches)
    fail(DSC_ERR_INVALID_ARG, "options->micro_batch_group is %d, expected %d to %d", group, least,
         spec.micro_batches);
  if (const int32_t rest = spec.micro_batches % group; rest > 0 && rest < spec.stages)
    fail(DSC_ERR_INVALID_ARG,
         "options->micro_batches is %d, expected a multiple of %d (options->micro_batch_group), or a number "
         "that leaves %d or more for the last group",
         spec.micro_batches, group, spec.stages);
}

// PyTorch's rule for groups of micro-batches: form as many groups as possible, each with at least as many
// micro-batches as there are stages. All groups must have the same size.
bool has_equal_groups(int32_t micro_batches, int32_t stages) {
  return micro_batches % std::max(1, micro_batches / stages) == 0;
}

int32_t default_group(const ScheduleSpec& spec) {
  const int32_t rounds = std::max(1, spec.micro_batches / spec.stages);
  if (has_equal_groups(spec.micro_batches, spec.stages)) return spec.micro_batches / rounds;
  // Find the next number of micro-batches with equal groups. The next multiple of `stages` has equal groups,
  // so the loop takes at most `stages` steps.
  int64_t more = int64_t{spec.micro_batches} + 1;
  while (more < INT32_MAX && !has_equal_groups(static_cast<int32_t>(more), spec.stages)) ++more;
  fail(DSC_ERR_INVALID_ARG,
       "options->micro_batches is %d, expected a number that splits into equal groups of %d (the number of "
       "stages) or slightly more, such as %d or %lld, for schedule \"interleaved_1f1b\"; for other groups, "
       "set options->micro_batch_group",
       spec.micro_batches, spec.stages, rounds * spec.stages, static_cast<long long>(more));
}

}  // namespace

std::shared_ptr<const PipelinePlan> make_plan(ScheduleSpec spec) {
  if (spec.name == kAuto) return find_best_plan(std::move(spec), {}, {}).plan;
  const Entry& entry = entry_of(spec.name);
  check_numbers(spec);
  if (spec.chunks == 0) spec.chunks = entry.default_chunks;
  check_chunks(spec, entry);
  check_options(spec, entry);
  const bool fits = spec.stages <= kMostStages && passes_of(spec) <= most_of(entry, spec);
  if (!fits && !entry.closed_form) refuse_size(spec, most_of(entry, spec));
  if (entry.order == zb_v && spec.micro_batches < 2 * spec.stages - 1) check_short_zb_v(spec);
  if (spec.name == "interleaved_1f1b") {
    if (spec.micro_batch_group == 0) spec.micro_batch_group = default_group(spec);
    check_group(spec);
  }
  if (spec.name == "dualpipe_v" && spec.micro_batches < int64_t{2} * spec.stages)
    fail(DSC_ERR_INVALID_ARG,
         "options->micro_batches is %d, expected %lld or more (2 x stages) for schedule \"dualpipe_v\"",
         spec.micro_batches, 2LL * spec.stages);
  if (entry.order == forward_passes) spec.forward_only = true;
  auto order = fits ? entry.order(spec) : nullptr;
  auto plan = std::make_shared<PipelinePlan>(std::move(spec), std::move(order), entry.shape);
  plan->closed_form = entry.closed_form;
  return plan;
}

void complete_custom(ScheduleSpec& spec) {
  check_numbers(spec);
  if (spec.name.empty()) spec.name = "custom";
  if (spec.chunks == 0) spec.chunks = 1;
  if (spec.chunks < 0) fail(DSC_ERR_INVALID_ARG, "options->chunks is %d, expected 1 or more", spec.chunks);
  if (spec.micro_batch_group != 0)
    fail(DSC_ERR_INVALID_ARG,
         "options->micro_batch_group is %d, expected 0: a custom schedule has no groups of micro-batches",
         spec.micro_batch_group);
  if (spec.stages > kMostStages || passes_of(spec) > kMostListed) refuse_size(spec, kMostListed);
}

std::shared_ptr<const PipelinePlan> make_custom(ScheduleSpec spec, std::vector<StageOrder> orders,
                                                PlacementShape shape) {
  auto plan = std::make_shared<PipelinePlan>(std::move(spec),
                                             std::make_shared<ListedOrder>(std::move(orders)), shape);
  plan->is_custom = true;
  expect_runs(*plan);
  if (plan->spec.merge_backward) plan->order = merged(*plan->order, plan->spec.stages);
  return plan;
}

std::shared_ptr<const PipelinePlan> changed(const PipelinePlan& plan, bool merge_backward,
                                            PipeMessages messages) {
  if ((merge_backward || messages != plan.spec.messages) && (plan.program || plan.closed_form))
    fail(DSC_ERR_INVALID_ARG,
         "schedule \"%s\" places its messages itself, expected 0 for options->merge_backward and "
         "options->messages",
         plan.spec.name.c_str());
  auto other = std::make_shared<PipelinePlan>(plan);
  other->spec.messages = messages;
  other->spec.merge_backward = merge_backward;
  if (merge_backward) other->order = merged(*plan.order, plan.spec.stages);
  return other;
}

void PipelinePlan::expect_order() const {
  if (!order) refuse_size(spec, kMostPlanned);
}

std::unique_ptr<Schedule> instructions_of(const PipelinePlan& plan, int32_t stage) {
  if (stage < 0 || stage >= plan.spec.stages)
    fail(DSC_ERR_INVALID_ARG, "stage is %d, expected 0 to %d", stage, plan.spec.stages - 1);
  if (!plan.closed_form) return lower(plan, stage);
  ScheduleSpec spec = plan.spec;
  spec.stage = stage;
  return plan.closed_form(std::move(spec));
}

std::unique_ptr<Schedule> make_schedule(ScheduleSpec spec) {
  const int32_t stage = spec.stage;
  return instructions_of(*make_plan(std::move(spec)), stage);
}

}  // namespace dsc
