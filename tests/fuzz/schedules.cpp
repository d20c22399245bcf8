#include "schedules.hpp"

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "fuzz.hpp"
#include "pipeline/catalog.hpp"
#include "pipeline/imported.hpp"

namespace dsc::fuzz {
namespace {

struct Place {
  size_t first = 0, last = 0;  // indices of instructions
  int32_t buffer = -1;
  int forward = 0, input_half = 0, weight_half = 0;
};

using Places = std::map<std::pair<int32_t, int32_t>, Place>;  // key: chunk and micro-batch

void note(Places& places, size_t number, const Instruction& it) {
  const auto [at, is_new] = places.try_emplace({it.chunk, it.micro_batch});
  Place& place = at->second;
  if (is_new) place = {.first = number, .buffer = it.buffer};
  place.last = number;
  FUZZ_REQUIRE(it.buffer == place.buffer);
  if (it.op == PipeOp::kForward) ++place.forward;
  if (runs_input_half(it.op)) ++place.input_half;
  if (runs_weight_half(it.op)) ++place.weight_half;
}

void check_places(const Places& places, const ScheduleSpec& spec) {
  FUZZ_REQUIRE(places.size() == static_cast<size_t>(spec.chunks) * static_cast<size_t>(spec.micro_batches));
  const int halves = spec.forward_only ? 0 : 1;
  std::map<int32_t, std::map<size_t, size_t>> used;  // for each buffer: first and last instruction
  for (const auto& [key, place] : places) {
    FUZZ_REQUIRE(place.forward == 1 && place.input_half == halves && place.weight_half == halves);
    FUZZ_REQUIRE(used[place.buffer].emplace(place.first, place.last).second);
  }
  for (const auto& [buffer, times] : used)
    for (auto at = times.begin(), next = std::next(at); next != times.end(); at = next++)
      FUZZ_REQUIRE(at->second < next->first);
}

void check_stage(const PipelinePlan& plan, int32_t stage) {
  const auto schedule = instructions_of(plan, stage);
  Places places;
  Instruction it;
  int64_t step = 0;
  for (size_t number = 0; schedule->next(it); ++number) {
    FUZZ_REQUIRE(it.step >= step && it.step < schedule->steps());
    step = it.step;
    if (it.micro_batch < 0) continue;
    FUZZ_REQUIRE(it.buffer >= 0 && it.buffer < schedule->buffers());
    note(places, number, it);
  }
  check_places(places, plan.spec);
}

}  // namespace

void check_lowering(const PipelinePlan& plan) {
  for (int32_t stage = 0; stage < plan.spec.stages; ++stage) check_stage(plan, stage);
  PipelinePlan given = plan;
  given.program = std::make_shared<Program>(program_of(plan));
  expect_runs(given);
}

}  // namespace dsc::fuzz
