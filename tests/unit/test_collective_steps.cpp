// Two ranks in one thread. The test moves their collectives by hand, so that it can try every order of their
// steps.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>
#include <algorithm>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/guard.hpp"
#include "dtype/user_op.hpp"
#include "engine_host/collective.hpp"
#include "engine_host/small.hpp"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
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
      dsc::HostGroupSettings settings;
      settings.meeting.master_addr = "127.0.0.1";
      settings.meeting.job_id = job;
      settings.meeting.rank = rank;
      settings.meeting.world_size = 2;
      settings.meeting.host = "here";
      settings.meeting.deadline = dsc::Deadline::after_ms(20'000);
      groups[rank] = Group::create(dsc::HostGroup::join(settings), 1, "pair", {0, 1});
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

// A thread that drives a rank's operations may take the first step of an operation before the rank's caller
// enters it.
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

// One rank blocks in a small operation, and the other rank has queued the same operation. Each must find the
// other's data. Small data is stored together with the call, larger data in the rank's stage, which is a
// buffer in shared memory.
void small_meets_queued(void**) {
  Pair pair;
  uint64_t number = 0;
  for (const size_t count : {1, 26, 27, 1024})
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

// The input and the output of one rank in an operation whose blocks have `count` elements.
struct Part {
  std::vector<float> send, recv;
  dsc::Call call;

  Part(OpKind kind, int root, int rank, size_t count) : call(call_of(kind)) {
    const dsc::Pattern pattern = dsc::pattern_of(kind);
    if (rank == root || !dsc::only_root_sends(pattern)) {
      send.resize(dsc::divides(pattern) ? 2 * count : count);
      for (size_t i = 0; i < send.size(); ++i) send[i] = value(rank, i);
      call.send = send.data();
    }
    if (rank == root || !dsc::only_root_receives(pattern)) {
      recv.assign(dsc::collects(pattern) ? 2 * count : count, -1.0f);
      call.recv = recv.data();
    }
    call.dtype = DSC_DTYPE_F32;
    call.op = dsc::reduces(pattern) ? DSC_OP_SUM : 0;
    call.root = root;
    call.count = count;
  }

  static float value(int rank, size_t i) { return static_cast<float>(1000 * rank) + static_cast<float>(i); }

  // Compares the received data with the definition of the operation.
  void expect_result(int rank) const {
    const dsc::Pattern pattern = dsc::pattern_of(call.kind);
    const size_t first = dsc::divides(pattern) ? call.count * static_cast<size_t>(rank) : 0;
    for (size_t i = 0; i < recv.size(); ++i) {
      const int sender = dsc::collects(pattern) ? static_cast<int>(i / call.count) : call.root;
      const size_t at = first + i % call.count;
      const float expected = dsc::reduces(pattern) ? value(0, at) + value(1, at) : value(sender, at);
      assert_true(recv[i] == expected);
    }
  }
};

// Steps each of the two operations in turn until both have ended.
void step_to_the_end(SmallCollective& small, Collective& queued) {
  Progress ends[2] = {Progress::kPending, Progress::kPending};
  dsc::Operation* const operations[2] = {&small, &queued};
  for (int turn = 0; turn < 20; ++turn)
    for (int i = 0; i < 2; ++i)
      if (ends[i] != Progress::kDone) ends[i] = operations[i]->step();
  assert_true(ends[0] == Progress::kDone && ends[1] == Progress::kDone);
}

// A small operation of one rank meets the queued operation of the other rank, which starts earlier or later.
void expect_they_meet(Pair& pair, uint64_t number, OpKind kind, int root, int small_rank, size_t count,
                      bool small_first) {
  const int queued_rank = 1 - small_rank;
  Part small_part(kind, root, small_rank, count), queued_part(kind, root, queued_rank, count);
  assert_true(SmallCollective::suits(*pair.groups[small_rank], small_part.call));
  SmallCollective small(*pair.groups[small_rank], small_part.call, number);
  Collective queued(*pair.groups[queued_rank], queued_part.call, number);
  if (small_first) {
    small.publish();
    assert_true(small.step() == Progress::kPending);
  } else {
    assert_true(queued.step() == Progress::kPending);
    small.publish();
  }
  step_to_the_end(small, queued);
  small_part.expect_result(small_rank);
  queued_part.expect_result(queued_rank);
}

void small_meets_queued_of(OpKind kind, std::initializer_list<int> roots,
                           std::initializer_list<size_t> counts) {
  Pair pair;
  uint64_t number = 0;
  for (const int root : roots)
    for (const size_t count : counts)
      for (const int small_rank : {0, 1})
        for (const bool small_first : {true, false})
          expect_they_meet(pair, ++number, kind, root, small_rank, count, small_first);
}

// The root uses first the small operation and then the queued one. 26 elements are stored with the call, 27
// elements need the stage.
void small_meets_queued_with_a_root(void**) {
  for (const OpKind kind : {OpKind::kReduce, OpKind::kGather, OpKind::kBroadcast, OpKind::kScatter})
    small_meets_queued_of(kind, {0, 1}, {1, 13, 14, 26, 27, 100, kind == OpKind::kScatter ? 1024u : 2048u});
}

void small_meets_queued_in_parts(void**) {
  for (const OpKind kind : {OpKind::kAllGather, OpKind::kReduceScatter, OpKind::kAllToAll})
    small_meets_queued_of(kind, {-1}, {1, 13, 14, 26, 27, 100, kind == OpKind::kAllGather ? 2048u : 1024u});
}

// Adds, or fails in the given way.
enum class Ends { kWell, kReturning, kThrowing };
int32_t add_or_fail(const dsc::UserOpCall& call, Ends how) {
  if (how == Ends::kThrowing) throw std::runtime_error("no sum today");
  if (how == Ends::kReturning) return 7;
  for (size_t i = 0; i < call.count; ++i)
    static_cast<float*>(call.result)[i] += static_cast<const float*>(call.input)[i];
  return 0;
}

// Drives an operation as its queue does: an exception of a step fails the group.
Progress drive(dsc::Operation& operation) {
  Progress progress = Progress::kFailed;
  dsc::capture([&] { progress = operation.step(); },
               [&](dsc_result_t code, const char* text) { fail_operation(operation, code, text); });
  for (int turn = 0; progress == Progress::kFailed && operation.depart() == Progress::kPending; ++turn)
    assert_true(turn < 20);
  return progress;
}

// The error names the rank whose function failed. The operation of the other rank ends as well, with the sum
// or with that error.
void expect_named_failure(Ends how, bool small_fails, const char* text) {
  Pair pair;
  const auto op_of = [&](bool is_failing) {
    const auto function = [=](const dsc::UserOpCall& call) {
      return add_or_fail(call, is_failing ? how : Ends::kWell);
    };
    return std::make_shared<const dsc::UserOp>(dsc::UserOp{function, 5, true});
  };
  Part parts[2] = {{OpKind::kAllReduce, -1, 0, 3}, {OpKind::kAllReduce, -1, 1, 3}};
  for (int rank = 0; rank < 2; ++rank) {
    parts[rank].call.op = dsc::kUserOp;
    parts[rank].call.op_id = 5;
    parts[rank].call.user = op_of(small_fails == (rank == 0));
  }
  SmallCollective small(*pair.groups[0], parts[0].call, 1);
  Collective queued(*pair.groups[1], parts[1].call, 1);
  small.publish();
  assert_true(small.step() == Progress::kPending);
  dsc::Operation& other = small_fails ? static_cast<dsc::Operation&>(queued) : small;
  dsc::Operation& failing = small_fails ? static_cast<dsc::Operation&>(small) : queued;
  queued.enter();
  assert_true(drive(failing) == Progress::kFailed);
  const dsc::Failure failure = failing.failure();
  assert_int_equal(failure.code, DSC_ERR_CALLBACK);
  assert_true(failure.ranks == dsc::RankList{small_fails ? 0 : 1});
  assert_non_null(std::strstr(failure.text.c_str(), text));
  if (drive(other) == Progress::kDone)
    parts[small_fails ? 1 : 0].expect_result(small_fails ? 1 : 0);
  else
    assert_int_equal(other.failure().code, DSC_ERR_CALLBACK);
  assert_true(pair.groups[0]->revoked() && pair.groups[1]->revoked());
}

void a_failing_function_is_named(void**) {
  for (const bool small_fails : {true, false}) {
    expect_named_failure(Ends::kReturning, small_fails, "user operation 5 returned 7");
    expect_named_failure(Ends::kThrowing, small_fails, "user operation 5 threw: no sum today");
  }
}

// Rank 1 calls the operation only after the operation of rank 0, which waits for rank 1, has timed out.
template <typename Waiting, typename Late>
void expect_time_out(OpKind kind, int root) {
  Pair pair;
  Part here(kind, root, 0, 3), there(kind, root, 1, 3);
  Waiting waiting(*pair.groups[0], here.call, 1);
  waiting.start(dsc::tick_now(), 20);
  const dsc::Deadline limit = dsc::Deadline::after_ms(20'000);
  while (waiting.step() == Progress::kPending) {
    assert_true(limit.remaining_ms() > 0);
    waiting.look_at_clock();
  }
  assert_true(waiting.step() == Progress::kFailed);
  const dsc::Failure failure = waiting.failure();
  assert_int_equal(failure.code, DSC_ERR_TIMEOUT);
  assert_true(failure.ranks == dsc::RankList{1});
  assert_non_null(std::strstr(failure.text.c_str(), "rank 1 (pid "));
  assert_non_null(std::strstr(failure.text.c_str(), ") did not arrive within "));
  Late late(*pair.groups[1], there.call, 1);
  late.publish();
  late.enter();
  assert_true(late.step() == Progress::kFailed);
  assert_non_null(std::strstr(late.failure().text.c_str(), "this is rank 1, which arrived late"));
  for (const float found : there.recv) assert_true(found == -1.0f);
}

void a_member_that_never_comes_is_named(void**) {
  for (const OpKind kind : {OpKind::kAllReduce, OpKind::kAllGather, OpKind::kReduceScatter}) {
    expect_time_out<SmallCollective, Collective>(kind, -1);
    expect_time_out<Collective, SmallCollective>(kind, -1);
  }
  for (const OpKind kind : {OpKind::kReduce, OpKind::kGather, OpKind::kBroadcast, OpKind::kScatter})
    for (const int root : {0, 1}) expect_time_out<SmallCollective, Collective>(kind, root);
}

// Large operations, and those that need another data path, must not use the path for small operations. A rank
// may publish 8 KiB: one block, or a block for each rank. Ranks divide larger all-reduces.
void not_small(void**) {
  Pair pair;
  const dsc::Group& group = *pair.groups[0];
  const size_t direct = group.tuning().direct_bytes / sizeof(float) / 2;
  const std::pair<OpKind, size_t> largest[] = {
      {OpKind::kReduce, 2048},        {OpKind::kGather, 2048},
      {OpKind::kBroadcast, 2048},     {OpKind::kAllGather, 2048},
      {OpKind::kScatter, 1024},       {OpKind::kAllToAll, 1024},
      {OpKind::kReduceScatter, 1024}, {OpKind::kAllReduce, std::min<size_t>(2048, direct)},
  };
  std::vector<float> data(4);
  for (const auto& [kind, count] : largest) {
    dsc::Call call = sum_of(data, data);
    call.kind = kind;
    call.count = count;
    assert_true(SmallCollective::suits(group, call));
    ++call.count;
    assert_false(SmallCollective::suits(group, call));
  }
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
      cmocka_unit_test(entering_late_is_no_second_arrival), cmocka_unit_test(small_meets_queued),
      cmocka_unit_test(small_meets_queued_with_a_root),     cmocka_unit_test(small_meets_queued_in_parts),
      cmocka_unit_test(small_and_other_mismatch),           cmocka_unit_test(a_failing_function_is_named),
      cmocka_unit_test(a_member_that_never_comes_is_named), cmocka_unit_test(not_small),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
