// Two ranks of one thread, whose collectives are moved by hand: every order of their steps can be had.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "engine_host/collective.hpp"
#include "engine_host/small.hpp"

extern "C" {
#include <cmocka.h>  // last: it defines fail() as a macro
}

namespace {

using dsc::Collective;
using dsc::Group;
using dsc::OpKind;
using dsc::Progress;
using dsc::SmallCollective;

struct Pair {
  std::shared_ptr<Group> groups[2];

  Pair() {
    static int pairs = 0;
    const std::string job = "steps-" + std::to_string(getpid()) + "-" + std::to_string(++pairs);
    on_both([&](int rank) {
      dsc::WorldSettings settings;
      settings.meeting.master_addr = "127.0.0.1";
      settings.meeting.job_id = job;
      settings.meeting.rank = rank;
      settings.meeting.world_size = 2;
      settings.meeting.host = "here";
      settings.meeting.deadline = dsc::Deadline::after_ms(20'000);
      groups[rank] = Group::create(dsc::World::join(settings), 1, "pair", {0, 1});
      groups[rank]->map_members(settings.meeting.deadline, [] {});
    });
  }

  template <typename Body>
  static void on_both(Body body) {
    std::thread other([&] { body(1); });
    body(0);
    other.join();
  }
};

dsc::Call call_of(dsc::OpKind kind) {
  dsc::Call call;
  call.kind = kind;
  return call;
}

// A thread that drives its rank's operations may take the first step of one before its caller enters it.
void entering_late_is_no_second_arrival(void**) {
  Pair pair;
  for (int turn = 0; turn < 3; ++turn) {
    const auto number = static_cast<uint64_t>(turn) + 1;
    const dsc::Call call = call_of(dsc::OpKind::kBarrier);
    Collective first(*pair.groups[0], call, number);
    Collective second(*pair.groups[1], call, number);
    assert_true(first.step() == Progress::kPending);
    second.enter();
    first.enter();
    assert_int_equal(pair.groups[0]->epoch(), pair.groups[1]->epoch());
    assert_true(first.step() == Progress::kDone);
    assert_true(second.step() == Progress::kDone);
  }
}

dsc::Call sum_of(const std::vector<float>& send, std::vector<float>& recv) {
  dsc::Call call = call_of(OpKind::kAllReduce);
  call.dtype = DSC_DTYPE_F32;
  call.op = DSC_OP_SUM;
  call.send = send.data();
  call.recv = recv.data();
  call.count = send.size();
  return call;
}

// One rank blocks in a small operation, the other one has queued the same: they find each other's data beside
// the call and, where there is more, in the stage.
void small_meets_queued(void**) {
  Pair pair;
  uint64_t number = 0;
  for (const size_t count : {1, 26, 27, 256})
    for (const bool small_first : {true, false}) {
      std::vector<float> a(count), b(count), sum_a(count), sum_b(count);
      for (size_t i = 0; i < count; ++i) {
        a[i] = static_cast<float>(i);
        b[i] = static_cast<float>(100 * i);
      }
      const dsc::Call call_a = sum_of(a, sum_a), call_b = sum_of(b, sum_b);
      assert_true(SmallCollective::suits(*pair.groups[0], call_a));
      ++number;
      SmallCollective small(*pair.groups[0], call_a, number);
      Collective queued(*pair.groups[1], call_b, number);
      if (small_first) {
        small.publish();
        assert_true(small.step() == Progress::kPending);
        assert_true(queued.step() == Progress::kDone);
      } else {
        assert_true(queued.step() == Progress::kPending);
        small.publish();
      }
      assert_true(small.step() == Progress::kDone);
      if (!small_first) assert_true(queued.step() == Progress::kDone);
      for (size_t i = 0; i < count; ++i)
        assert_true(sum_a[i] == static_cast<float>(101 * i) && sum_b[i] == sum_a[i]);
    }
}

void small_and_other_mismatch(void**) {
  Pair pair;
  const std::vector<float> a(3, 1.0f), b(4, 1.0f);
  std::vector<float> sum_a(3, -1.0f), sum_b(4, -1.0f);
  const dsc::Call call_a = sum_of(a, sum_a), call_b = sum_of(b, sum_b);
  SmallCollective small(*pair.groups[0], call_a, 1);
  Collective queued(*pair.groups[1], call_b, 1);
  small.publish();
  assert_true(small.step() == Progress::kPending);
  assert_true(queued.step() == Progress::kFailed);
  assert_true(small.step() == Progress::kFailed);
  assert_int_equal(small.failure().code, DSC_ERR_MISMATCH);
  assert_true(sum_a == std::vector<float>(3, -1.0f) && sum_b == std::vector<float>(4, -1.0f));
}

// What needs other ways is not small.
void not_small(void**) {
  Pair pair;
  std::vector<float> data(257);
  assert_false(SmallCollective::suits(*pair.groups[0], sum_of(data, data)));
  data.resize(4);
  dsc::Call call = sum_of(data, data);
  call.nonfinite = dsc::NonFiniteCheck::kCount;
  assert_false(SmallCollective::suits(*pair.groups[0], call));
  call = sum_of(data, data);
  call.count = SIZE_MAX / 2;
  assert_false(SmallCollective::suits(*pair.groups[0], call));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(entering_late_is_no_second_arrival),
      cmocka_unit_test(small_meets_queued),
      cmocka_unit_test(small_and_other_mismatch),
      cmocka_unit_test(not_small),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
