// The lowering pass with many kinds of orders: several chunks per stage, stages that hold adjacent parts,
// split backward passes, random orders. Also orders that cannot be run.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "pipeline/catalog.hpp"
#include "pipeline/lower.hpp"
#include "pipeline_support.hpp"
#include "repetitions.h"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

namespace {

using dsc::Compute;
using dsc::PipeOp;
using dsc::Placement;
using dsc::PlacementShape;

using dsc::StageOrder;

struct Case {
  const char* name;
  int32_t stages;
  int32_t micro_batches;
  int32_t chunks;
  PlacementShape shape;
  std::vector<StageOrder> orders;
};

constexpr Compute forward(int32_t chunk, int32_t m) { return {PipeOp::kForward, chunk, m, false}; }
constexpr Compute backward(int32_t chunk, int32_t m) { return {PipeOp::kBackward, chunk, m, false}; }
constexpr Compute input_half(int32_t chunk, int32_t m) { return {PipeOp::kBackwardInput, chunk, m, false}; }
constexpr Compute weight_half(int32_t chunk, int32_t m) { return {PipeOp::kBackwardWeight, chunk, m, false}; }

// ---- orders of the literature ----

// Groups of `stages` micro-batches run through all chunks in turn (Megatron-LM).
Case interleaved(int32_t stages, int32_t micro_batches, int32_t chunks) {
  Case it{"interleaved", stages, micro_batches, chunks, PlacementShape::kLoop, {}};
  const int32_t total = micro_batches * chunks;
  const auto chunk = [&](int32_t k) { return k % (stages * chunks) / stages; };
  const auto micro_batch = [&](int32_t k) { return k / (stages * chunks) * stages + k % stages; };
  for (int32_t stage = 0; stage < stages; ++stage) {
    const int32_t warm_up = std::min(2 * (stages - 1 - stage) + (chunks - 1) * stages, total);
    StageOrder& order = it.orders.emplace_back();
    for (int32_t k = 0; k < total + warm_up; ++k) {
      if (k < total) order.push_back(forward(chunk(k), micro_batch(k)));
      const int32_t b = k - warm_up;
      if (b >= 0) order.push_back(backward(chunks - 1 - chunk(b), micro_batch(b)));
    }
  }
  return it;
}

// Runs one chunk after the other. With `falling` the backward passes start with the last micro-batch, as in
// PyTorch.
Case looped_bfs(int32_t stages, int32_t micro_batches, int32_t chunks, bool falling) {
  Case it{falling ? "looped_bfs, falling" : "looped_bfs",
          stages,
          micro_batches,
          chunks,
          PlacementShape::kLoop,
          {}};
  for (int32_t stage = 0; stage < stages; ++stage) {
    StageOrder& order = it.orders.emplace_back();
    for (int32_t c = 0; c < chunks; ++c)
      for (int32_t m = 0; m < micro_batches; ++m) order.push_back(forward(c, m));
    for (int32_t c = chunks - 1; c >= 0; --c)
      for (int32_t m = 0; m < micro_batches; ++m)
        order.push_back(backward(c, falling ? micro_batches - 1 - m : m));
  }
  return it;
}

Case zb_h1(int32_t stages, int32_t micro_batches) {
  Case it{"zb_h1", stages, micro_batches, 1, PlacementShape::kLoop, {}};
  for (int32_t stage = 0; stage < stages; ++stage) {
    StageOrder& order = it.orders.emplace_back();
    const int32_t warm_up = std::min(stages - stage, micro_batches);
    for (int32_t m = 0; m < warm_up; ++m) order.push_back(forward(0, m));
    for (int32_t m = 0; m < micro_batches + stage; ++m) {
      if (m < micro_batches) order.push_back(input_half(0, m));
      if (m >= stage) order.push_back(weight_half(0, m - stage));
      if (m < micro_batches && warm_up + m < micro_batches) order.push_back(forward(0, warm_up + m));
    }
  }
  return it;
}

// Writes the order of one stage in ZB-V. Each call adds an operation for the next micro-batch while there is
// one.
class ZigZagWriter {
 public:
  ZigZagWriter(StageOrder& order, int32_t micro_batches) : order_(order), micro_batches_(micro_batches) {}

  bool forward(int32_t chunk) { return add(PipeOp::kForward, chunk, forwards_[chunk]); }
  void input(int32_t chunk) { add(PipeOp::kBackwardInput, chunk, inputs_[chunk]); }
  void weight(int32_t chunk) { add(PipeOp::kBackwardWeight, chunk, weights_[chunk]); }
  void both(int32_t chunk) {
    input(chunk);
    weight(chunk);
  }
  bool has_forward() const { return forwards_[0] < micro_batches_ || forwards_[1] < micro_batches_; }
  void rest_of_weights(int32_t chunk) {
    while (weights_[chunk] < micro_batches_) weight(chunk);
  }

 private:
  bool add(PipeOp op, int32_t chunk, int32_t& m) {
    if (m == micro_batches_) return false;
    order_.push_back({op, chunk, m++, false});
    return true;
  }

  StageOrder& order_;
  const int32_t micro_batches_;
  int32_t forwards_[2]{};
  int32_t inputs_[2]{};
  int32_t weights_[2]{};
};

Case zb_v(int32_t stages, int32_t micro_batches) {
  Case it{"zb_v", stages, micro_batches, 2, PlacementShape::kZigZag, {}};
  for (int32_t r = 0; r < stages; ++r) {
    ZigZagWriter write(it.orders.emplace_back(), micro_batches);
    for (int32_t i = 0; i < 2 * (stages - r) - 1; ++i) write.forward(0);
    for (int32_t i = 0; i < r; ++i) write.forward(1), write.forward(0);
    for (int32_t i = 0; i < stages - r; ++i) write.forward(1), write.both(1);
    while (write.has_forward()) {
      write.forward(0);
      write.both(0);
      write.forward(1);
      write.both(1);
    }
    for (int32_t i = 0; i < r; ++i) write.input(0), write.input(1);
    for (int32_t i = 0; i < stages - r; ++i) write.both(0);
    write.rest_of_weights(1);
    write.rest_of_weights(0);
  }
  return it;
}

// ---- properties of all orders ----

dsc::PipelinePlan plan_of(const Case& it) {
  return {{.name = it.name, .stages = it.stages, .micro_batches = it.micro_batches, .chunks = it.chunks},
          std::make_shared<dsc::ListedOrder>(it.orders),
          it.shape};
}

std::unique_ptr<dsc::Schedule> lowered(const Case& it, int32_t stage) {
  return dsc::lower(plan_of(it), stage);
}

StageOrder computes(const List& list) {
  StageOrder order;
  for (const auto& i : list)
    if (i.op >= PipeOp::kForward && i.op <= PipeOp::kBackwardWeight)
      order.push_back({i.op, i.chunk, i.micro_batch, false});
  return order;
}

// Returns the plan's order for one stage, without overlap marks and idle steps.
StageOrder order_of(const dsc::PipelinePlan& plan, int32_t stage) {
  StageOrder order;
  for (int64_t k = 0; k < plan.order->size(stage); ++k) {
    Compute op = plan.order->at(stage, k);
    op.overlaps = false;
    if (op.op != dsc::kIdle) order.push_back(op);
  }
  return order;
}

// Checks a plan and returns its makespan.
int64_t check_plan(const dsc::PipelinePlan& plan) {
  const std::string what = plan.spec.name + ", " + std::to_string(plan.spec.stages) + " stages, " +
                           std::to_string(plan.spec.micro_batches) + " micro-batches, " +
                           std::to_string(plan.spec.chunks) + " chunks";
  std::vector<List> lists;
  for (int32_t stage = 0; stage < plan.spec.stages; ++stage) {
    const auto schedule = dsc::lower(plan, stage);
    const List& list = lists.emplace_back(rest_of(*schedule));
    if (computes(list) != order_of(plan, stage))
      fail_msg("%s: stage %d computes in another order", what.c_str(), stage);
    const BufferUse use = follow_buffers(list, stage, plan.placement, !plan.spec.forward_only);
    if (!use.problem.empty() || use.peak != schedule->buffers())
      fail_msg("%s, stage %d: %d buffers at once, schedule says %d; %s", what.c_str(), stage, use.peak,
               schedule->buffers(), use.problem.c_str());
  }
  const Outcome outcome = run_rendezvous(lists, plan.placement, plan.spec.micro_batches);
  if (!outcome.problem.empty()) fail_msg("%s: %s", what.c_str(), outcome.problem.c_str());
  return outcome.makespan;
}

int64_t check(const Case& it) { return check_plan(plan_of(it)); }

void several_chunks(void**) {
  for (int32_t stages = 1; stages <= 6; ++stages)
    for (int32_t chunks = 1; chunks <= 3; ++chunks)
      for (int32_t groups = 1; groups <= 4; ++groups) {
        const int32_t micro_batches = groups * stages;
        const int64_t formula = 3 * (int64_t{micro_batches} * chunks + stages - 1);
        assert_int_equal(check(looped_bfs(stages, micro_batches, chunks, false)), formula);
        assert_int_equal(check(looped_bfs(stages, micro_batches, chunks, true)), formula);
        // In the interleaved order a forward pass and a neighbor's backward pass end at different times, so
        // that one stage waits for the other.
        const int64_t blocking = check(interleaved(stages, micro_batches, chunks));
        assert_true(blocking >= formula && blocking * 5 <= formula * 6);
      }
}

void split_backward_passes(void**) {
  for (int32_t stages = 1; stages <= 6; ++stages)
    for (int32_t micro_batches = 1; micro_batches <= 12; ++micro_batches) {
      const int64_t h1 = check(zb_h1(stages, micro_batches));
      if (micro_batches >= stages) assert_int_equal(h1, 3 * micro_batches + stages - 1);
      if (micro_batches >= 2 * stages - 1)
        assert_int_equal(check(zb_v(stages, micro_batches)), 6 * micro_batches + stages - 1);
    }
}

// ---- all named schedules, in many sizes ----

void check_named(const char* name, int32_t stages, int32_t micro_batches, int32_t chunks,
                 dsc::PipeMessages messages) {
  const auto plan = dsc::make_plan({.name = name,
                                    .stages = stages,
                                    .micro_batches = micro_batches,
                                    .chunks = chunks,
                                    .messages = messages});
  for (const bool forward_only : {false, true}) {
    auto spec = plan->spec;
    spec.forward_only = forward_only;
    check_plan(*dsc::make_plan(spec));
  }
  auto spec = plan->spec;
  spec.merge_backward = true;
  check_plan(*dsc::make_plan(spec));
}

void every_schedule_completes(void**) {
  for (const auto messages : {dsc::PipeMessages::kWhenNeeded, dsc::PipeMessages::kAtOnce})
    for (int32_t stages = 1; stages <= 6; ++stages)
      for (int32_t m : {1, 2, 3, 5, 8, 12, 16}) {
        for (const char* name : {"gpipe", "1f1b", "zb_h1", "zb_h2", "zb_v", "v_half", "v_min"})
          check_named(name, stages, m, 0, messages);
        for (int32_t chunks = 1; chunks <= 3; ++chunks) {
          check_named("looped_bfs", stages, m, chunks, messages);
          if (m < 2 * stages || m % stages == 0) check_named("interleaved_1f1b", stages, m, chunks, messages);
        }
        if (m >= 2 * stages) check_named("dualpipe_v", stages, m, 0, messages);
      }
}

void generators_equal_what_is_written_here(void**) {
  const auto equal = [](const char* name, const Case& it) {
    const auto plan = dsc::make_plan(
        {.name = name, .stages = it.stages, .micro_batches = it.micro_batches, .chunks = it.chunks});
    assert_true(plan->placement.shape() == it.shape || it.chunks == 1);
    for (int32_t s = 0; s < it.stages; ++s) {
      const StageOrder& order = it.orders[static_cast<size_t>(s)];
      assert_int_equal(plan->order->size(s), order.size());
      for (size_t k = 0; k < order.size(); ++k)
        if (plan->order->at(s, static_cast<int64_t>(k)) != order[k])
          fail_msg("%s, %d stages, %d micro-batches: stage %d differs at %zu", name, it.stages,
                   it.micro_batches, s, k);
    }
  };
  for (int32_t stages = 1; stages <= 6; ++stages)
    for (int32_t groups = 1; groups <= 4; ++groups) {
      const int32_t m = groups * stages;
      for (int32_t chunks = 1; chunks <= 3; ++chunks) {
        equal("interleaved_1f1b", interleaved(stages, m, chunks));
        equal("looped_bfs", looped_bfs(stages, m, chunks, true));
      }
      equal("zb_h1", zb_h1(stages, m + 1));
      if (m >= 2 * stages - 1) equal("zb_v", zb_v(stages, m));
    }
}

// ---- random orders ----

// The operations computed so far, for every part and micro-batch.
class Progress {
 public:
  Progress(const Placement& placement, int32_t micro_batches)
      : placement_(placement),
        micro_batches_(micro_batches),
        done_(static_cast<size_t>(placement.parts()) * static_cast<size_t>(micro_batches)) {}

  // Returns the next operations whose inputs are available. The list is empty when everything is done.
  std::vector<std::pair<int32_t, PipeOp>> ready(int32_t m, bool split) const {
    std::vector<std::pair<int32_t, PipeOp>> found;
    for (int32_t part = 0; part < placement_.parts(); ++part) {
      const int done = at(part, m);
      if (done == 0 && (part == 0 || at(part - 1, m) >= 1)) found.emplace_back(part, PipeOp::kForward);
      if (done == 1 && (part == placement_.parts() - 1 || at(part + 1, m) >= 2))
        found.emplace_back(part, split ? PipeOp::kBackwardInput : PipeOp::kBackward);
      if (done == 2) found.emplace_back(part, PipeOp::kBackwardWeight);
    }
    return found;
  }

  void note(int32_t part, int32_t m, PipeOp op) { done_[index(part, m)] += op == PipeOp::kBackward ? 2 : 1; }

 private:
  size_t index(int32_t part, int32_t m) const {
    return static_cast<size_t>(part) * static_cast<size_t>(micro_batches_) + static_cast<size_t>(m);
  }
  int at(int32_t part, int32_t m) const { return done_[index(part, m)]; }

  const Placement placement_;
  const int32_t micro_batches_;
  std::vector<int> done_;
};

// Puts the operations into a random possible order. Each is added to the list of the stage that runs it.
Case random_case(std::mt19937& random) {
  const auto up_to = [&](int32_t most) {
    return static_cast<int32_t>(random() % static_cast<uint32_t>(most));
  };
  Case it{"random",
          1 + up_to(6),
          1 + up_to(8),
          1 + up_to(3),
          up_to(2) == 0 ? PlacementShape::kLoop : PlacementShape::kZigZag,
          {}};
  const Placement placement(it.stages, it.chunks, it.shape);
  it.orders.resize(static_cast<size_t>(it.stages));
  Progress progress(placement, it.micro_batches);
  std::vector<int32_t> open(static_cast<size_t>(it.micro_batches));
  for (size_t m = 0; m < open.size(); ++m) open[m] = static_cast<int32_t>(m);
  while (!open.empty()) {
    const size_t which = random() % open.size();
    const int32_t m = open[which];
    const auto ready = progress.ready(m, up_to(2) == 0);
    if (ready.empty()) {
      open.erase(open.begin() + static_cast<ptrdiff_t>(which));
      continue;
    }
    const auto [part, op] = ready[random() % ready.size()];
    progress.note(part, m, op);
    it.orders[static_cast<size_t>(placement.stage(part))].push_back({op, placement.chunk(part), m, false});
  }
  return it;
}

void random_orders(void**) {
  std::mt19937 random(20);
  const int cases = test_repetitions(2000, 200);
  for (int i = 0; i < cases; ++i) check(random_case(random));
}

// ---- orders that cannot be run ----

void check_refused(Case it, std::vector<StageOrder> stages, std::initializer_list<const char*> words) {
  it.orders = std::move(stages);
  it.stages = static_cast<int32_t>(it.orders.size());
  try {
    lowered(it, 0);
  } catch (const dsc::Error& error) {
    assert_int_equal(error.code(), DSC_ERR_INVALID_ARG);
    for (const char* word : words)
      if (std::string(error.what()).find(word) == std::string::npos)
        fail_msg("\"%s\" does not say \"%s\"", error.what(), word);
    return;
  }
  fail_msg("the order was accepted, expected: %s", *words.begin());
}

Case two_micro_batches(int32_t chunks = 1) { return {"wrong", 1, 2, chunks, PlacementShape::kZigZag, {}}; }

const StageOrder kRight{forward(0, 0), forward(0, 1), backward(0, 0), backward(0, 1)};

void circles(void**) {
  const StageOrder in_turn{forward(0, 0), backward(0, 0), forward(0, 1), backward(0, 1)};
  const StageOrder second_first{forward(0, 1), forward(0, 0), backward(0, 0), backward(0, 1)};
  check_refused(
      two_micro_batches(), {in_turn, second_first},
      {"stage 0: operation 1, backward of micro-batch 0 in chunk 0", "stage 1 never computes its input"});
  check_refused(two_micro_batches(), {kRight, {}}, {"stage 0: operation 2, backward of micro-batch 0"});
  check_refused(
      two_micro_batches(2), {{forward(0, 0), forward(0, 1), backward(0, 0), forward(1, 0)}},
      {"stage 0: operation 2, backward of micro-batch 0 in chunk 0", "another chunk of this stage"});
}

void what_is_missing(void**) {
  check_refused(two_micro_batches(), {{forward(0, 0), forward(0, 1), backward(0, 0)}},
                {"stage 0: there is no backward of micro-batch 1 in chunk 0"});
  check_refused(two_micro_batches(), {{forward(0, 0), backward(0, 0)}},
                {"no forward of micro-batch 1 in chunk 0"});
  check_refused(two_micro_batches(), {{forward(0, 0), forward(0, 1), input_half(0, 0), backward(0, 1)}},
                {"no backward_weight of micro-batch 0 in chunk 0"});
  check_refused(
      two_micro_batches(2),
      {{forward(0, 0), forward(0, 1), forward(1, 0), forward(1, 1), backward(1, 0), backward(0, 0)}},
      {"no backward of micro-batch 1 in chunk 0"});
  check_refused(two_micro_batches(), {{}}, {"stage 0", "no forward of micro-batch 0"});
}

void what_is_wrong_by_itself(void**) {
  const auto refuse = [](std::initializer_list<Compute> order, std::initializer_list<const char*> words) {
    check_refused(two_micro_batches(), {StageOrder(order)}, words);
  };
  refuse({forward(0, 0), forward(0, 0)}, {"stage 0: operation 1, forward of micro-batch 0", "a second time"});
  refuse({forward(0, 0), backward(0, 0), backward(0, 0)}, {"operation 2, backward", "a second time"});
  refuse({forward(0, 0), backward(0, 0), weight_half(0, 0)}, {"backward_weight", "a second time"});
  refuse({forward(0, 0), input_half(0, 0), backward(0, 0)}, {"operation 2, backward", "a second time"});
  refuse({backward(0, 0)}, {"operation 0, backward", "before its forward pass"});
  refuse({forward(0, 0), weight_half(0, 0)}, {"backward_weight", "before its backward_input"});
  refuse({forward(1, 0)}, {"in chunk 1", "chunk that does not exist"});
  refuse({forward(-1, 0)}, {"in chunk -1", "chunk that does not exist"});
  refuse({forward(0, 2)}, {"micro-batch 2", "micro-batch that does not exist"});
  refuse({forward(0, INT32_MIN)}, {"micro-batch that does not exist"});
  refuse({Compute{PipeOp::kSendGrad, 0, 0, false}}, {"send_grad", "is no pass, expected forward"});
  refuse({Compute{static_cast<PipeOp>(77), 0, 0, false}}, {"unknown", "is no pass, expected forward"});
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(several_chunks),
      cmocka_unit_test(split_backward_passes),
      cmocka_unit_test(every_schedule_completes),
      cmocka_unit_test(generators_equal_what_is_written_here),
      cmocka_unit_test(random_orders),
      cmocka_unit_test(circles),
      cmocka_unit_test(what_is_missing),
      cmocka_unit_test(what_is_wrong_by_itself),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
