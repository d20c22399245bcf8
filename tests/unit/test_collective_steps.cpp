// Two ranks of one thread, whose collectives are moved by hand: every order of their steps can be had.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "engine_host/collective.hpp"

extern "C" {
#include <cmocka.h>  // last: it defines fail() as a macro
}

namespace {

using dsc::Collective;
using dsc::Group;
using dsc::Progress;

struct Pair {
  std::shared_ptr<Group> groups[2];

  Pair() {
    on_both([&](int rank) {
      dsc::WorldSettings settings;
      settings.meeting.master_addr = "127.0.0.1";
      settings.meeting.job_id = "steps-" + std::to_string(getpid());
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

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(entering_late_is_no_second_arrival)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
