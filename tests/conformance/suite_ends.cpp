// How operations and groups end, and what happens afterwards.
#include <poll.h>

#include "comm/gather.hpp"
#include "comm/work_set.hpp"
#include "dtype/user_op.hpp"
#include "session/engine_table.hpp"
#include "suite.hpp"

extern "C" {
#include "cmocka_c.h"  // included last because it defines a macro fail()
}

namespace suite {
namespace {

using dsc::Call;
using dsc::OpKind;

constexpr int kLate = 1;
constexpr int kLimitMs = 500;
constexpr int kSoonMs = 20'000;  // well below the time-out, RANKS_TIMEOUT_MS

// A sum of one element per rank, in the element type of the buffer.
Call sum_of(Buffer<float>& buffer, size_t count = 1) {
  Call call;
  call.kind = OpKind::kAllReduce;
  call.dtype = DSC_DTYPE_F32;
  call.op = DSC_OP_SUM;
  call.send = call.recv = buffer.data();
  call.count = count;
  return call;
}

// Waits until the operation is complete. On a device run() only puts it on a stream.
void complete(dsc::Comm& comm, const Call& call) { comm.start(call)->wait(dsc::Deadline::never()); }

bool is_readable(int descriptor, int timeout_ms) {
  pollfd entry{descriptor, POLLIN, 0};
  return ::poll(&entry, 1, timeout_ms) == 1;
}

std::shared_ptr<dsc::Comm> group_of_all(dsc::Comm& world) { return world.split(0, 0, {}); }

int works(rank_t* self, dsc::Comm& comm) {
  Buffer<float> buffer(comm, {1});
  complete(comm, sum_of(buffer));
  CHECK(self, buffer.read() == std::vector<float>{static_cast<float>(comm.size())});
  return 0;
}

// Every later call reports the cause.
int is_refused(rank_t* self, dsc::Comm& comm, const char* words) {
  Buffer<float> buffer(comm, {1});
  const dsc::Failure refusal = failure_of([&] { complete(comm, sum_of(buffer)); });
  if (refusal.code != DSC_ERR_REVOKED || !says(refusal, words))
    FAIL(self, "refused with %d: %s; expected REVOKED and \"%s\"", refusal.code, refusal.text.c_str(), words);
  CHECK(self, comm.revoked() && comm.failure().revoked);
  CHECK(self, buffer.read() == std::vector<float>{1});
  return 0;
}

bool has_several_hosts(const dsc::Comm& comm) {
  return static_cast<int>(comm.local_ranks().size()) < comm.size();
}

// The first call reports the cause. But a late rank on another host may find that all data for it was already
// sent. Then its sum is correct, and its next call reports the cause.
int learns_of_timeout(rank_t* self, dsc::Comm& group) {
  Buffer<float> buffer(group, {1});
  dsc::Failure failure = failure_of([&] { complete(group, sum_of(buffer)); });
  if (failure.code == DSC_OK && has_several_hosts(group)) {
    CHECK(self, buffer.read() == std::vector<float>{static_cast<float>(group.size())});
    failure = failure_of([&] { complete(group, sum_of(buffer)); });
  }
  if (failure.code != DSC_ERR_TIMEOUT) FAIL(self, "%d: %s", failure.code, failure.text.c_str());
  return 0;
}

}  // namespace

void a_work_ends_once(void**) {
  const Body body = [](rank_t* self, dsc::Comm& world) {
    PASS_ON(works(self, world));
    Buffer<float> buffer(world, {2});
    std::shared_ptr<dsc::Work> work;
    auto countdown = std::make_shared<dsc::Countdown>(1);
    if (world.rank() == kLate) PASS_ON(ranks_await(self, 1));
    work = world.start(sum_of(buffer));
    if (world.rank() == 0) {
      CHECK(self, !work->test() && !work->wait(dsc::Deadline::after_ms(50)));
      CHECK(self, work->failure().code == DSC_IN_PROGRESS);
      CHECK(self, !is_readable(work->event_fd(), 0) && !is_readable(countdown->event_fd(), 0));
      work->notify(countdown);
      ranks_note(self, 1);
    }
    CHECK(self, is_readable(work->event_fd(), RANKS_TIMEOUT_MS));
    CHECK(self, work->done() && work->test() && work->wait(dsc::Deadline{0}));
    CHECK(self, work->failure().code == DSC_OK);
    if (world.rank() == 0) CHECK(self, is_readable(countdown->event_fd(), RANKS_TIMEOUT_MS));
    CHECK(self, buffer.read() == std::vector<float>{2 * static_cast<float>(world.size())});
    const int64_t start = now_ms();
    while (!world.progress(dsc::Deadline::after_ms(kSoonMs))) CHECK(self, now_ms() - start < kSoonMs);
    return 0;
  };
  for (const int size : {2, 4}) assert_int_equal(run(size, body), 0);
}

// Rank 0 waits alone in its operation until it lets the other ranks start theirs. On a device operations
// proceed without calls.
void progress_waits_for_all_worlds(void**) {
  const Body body = [](rank_t* self, dsc::Comm& world) {
    if (world.device() >= 0) return works(self, world);
    Buffer<float> buffer(world, {1});
    if (world.rank() != 0) PASS_ON(ranks_await(self, 1));
    const auto work = world.start(sum_of(buffer));
    if (world.rank() == 0) {
      CHECK(self, !dsc::progress_all(dsc::Deadline::after_ms(20)) && !work->done());
      ranks_note(self, 1);
    }
    const int64_t start = now_ms();
    while (!work->done() && now_ms() - start < kSoonMs) dsc::progress_all(dsc::Deadline::after_ms(100));
    CHECK(self, work->wait(dsc::Deadline{0}));
    PASS_ON(ranks_meet(self));  // ranks may be threads, whose operations count here as well
    while (!dsc::progress_all(dsc::Deadline::after_ms(kSoonMs))) CHECK(self, now_ms() - start < kSoonMs);
    PASS_ON(ranks_meet(self));
    return works(self, world);
  };
  assert_int_equal(run(4, body), 0);
}

void a_deadline_fails_the_group(void**) {
  const Body body = [](rank_t* self, dsc::Comm& world) {
    const auto group = group_of_all(world);
    PASS_ON(works(self, *group));
    const int64_t start = now_ms();
    // the first deadline fails all ranks, so no rank may start before this rank has read the clock
    PASS_ON(ranks_meet(self));
    if (world.rank() != kLate) {
      Buffer<float> buffer(*group, {1});
      Call call = sum_of(buffer);
      call.timeout_ms = kLimitMs;
      const auto work = group->start(call);
      CHECK(self, is_readable(work->event_fd(), kSoonMs));
      CHECK(self, now_ms() - start >= kLimitMs);
      const dsc::Failure failure = failure_of([&] { work->wait(dsc::Deadline::never()); });
      if (failure.code != DSC_ERR_TIMEOUT || failure.rank() != kLate || !says(failure, "rank 1"))
        FAIL(self, "%d of rank %d: %s", failure.code, failure.rank(), failure.text.c_str());
      CHECK(self, failure.sequence == 2 && failure.operation == std::string_view("all_reduce"));
    }
    PASS_ON(ranks_meet(self));
    if (world.rank() == kLate) PASS_ON(learns_of_timeout(self, *group));
    PASS_ON(is_refused(self, *group, "rank 1"));
    return works(self, world);
  };
  for (const int size : {2, 4}) assert_int_equal(run(size, body), 0);
}

void different_calls_are_a_mismatch(void**) {
  const Body body = [](rank_t* self, dsc::Comm& world) {
    for (const int difference : {0, 1, 2, 3}) {
      const auto group = group_of_all(world);
      Buffer<float> buffer(*group, {1, 1});
      Call call = sum_of(buffer);
      if (world.rank() == kLate) {
        if (difference == 0) call.count = 2;
        if (difference == 1) call.op = DSC_OP_MAX;
        if (difference == 2) call.kind = OpKind::kBroadcast, call.op = 0, call.root = 0;
        if (difference == 3) call.tag = 77;
      }
      const dsc::Failure failure = failure_of([&] { complete(*group, call); });
      if (failure.code != DSC_ERR_MISMATCH || failure.ranks.empty() || !says(failure, "rank 1"))
        FAIL(self, "difference %d: %d of rank %d: %s", difference, failure.code, failure.rank(),
             failure.text.c_str());
      CHECK(self, (buffer.read() == std::vector<float>{1, 1}));
    }
    return works(self, world);
  };
  for (const int size : {3, 4}) assert_int_equal(run(size, body), 0);
}

void different_messages_are_a_mismatch(void**) {
  const Body body = [](rank_t* self, dsc::Comm& world) {
    const auto group = group_of_all(world);
    Buffer<float> buffer(*group, {1, 1});
    Call call = sum_of(buffer, world.rank() == 0 ? 1 : 2);
    call.kind = world.rank() == 0 ? OpKind::kSend : OpKind::kRecv;
    call.op = 0;
    call.root = 1 - world.rank();
    const dsc::Failure failure = failure_of([&] { complete(*group, call); });
    if (failure.code != DSC_ERR_MISMATCH || !says(failure, "rank 0: ") || !says(failure, "rank 1: "))
      FAIL(self, "%d of rank %d: %s", failure.code, failure.rank(), failure.text.c_str());
    return works(self, world);
  };
  assert_int_equal(run(2, body), 0);
}

void a_rank_that_leaves_is_named(void**) {
  const Body body = [](rank_t* self, dsc::Comm& world) {
    auto group = group_of_all(world);
    PASS_ON(works(self, *group));
    if (world.rank() == kLate) {
      group->leave();
      group->leave();
      Buffer<float> buffer(world, {1});
      CHECK(self, failure_of([&] { complete(*group, sum_of(buffer)); }).code == DSC_ERR_STATE);
      group.reset();
      return works(self, world);
    }
    Buffer<float> buffer(*group, {1});
    const dsc::Failure failure = failure_of([&] { complete(*group, sum_of(buffer)); });
    if (failure.code != DSC_ERR_PEER_LEFT || failure.rank() != kLate || !says(failure, "rank 1"))
      FAIL(self, "%d of rank %d: %s", failure.code, failure.rank(), failure.text.c_str());
    PASS_ON(is_refused(self, *group, "rank 1"));
    return works(self, world);
  };
  for (const int size : {2, 4}) assert_int_equal(run(size, body), 0);
}

// One rank fails for a local reason. The other ranks learn that the group has failed, and why.
void a_revoked_group_keeps_its_first_cause(void**) {
  const Body body = [](rank_t* self, dsc::Comm& world) {
    const auto group = group_of_all(world);
    PASS_ON(works(self, *group));
    PASS_ON(
        // revoking affects the group immediately, even ranks that are still in their first sum
        ranks_meet(self));
    if (world.rank() == kLate) {
      dsc::Failure cause;
      cause.code = DSC_ERR_NOMEM;
      cause.ranks = {kLate};
      cause.text = "no memory for a gradient";
      group->revoke(cause);
      cause.text = "a second cause";
      group->revoke(cause);
    } else {
      Buffer<float> buffer(*group, {1});
      const dsc::Failure failure = failure_of([&] { complete(*group, sum_of(buffer)); });
      if (failure.code != DSC_ERR_REVOKED || failure.rank() != kLate ||
          !says(failure, "no memory for a gradient"))
        FAIL(self, "%d of rank %d: %s", failure.code, failure.rank(), failure.text.c_str());
    }
    PASS_ON(is_refused(self, *group, "no memory for a gradient"));
    return works(self, world);
  };
  for (const int size : {2, 4}) assert_int_equal(run(size, body), 0);
}

// Only one rank makes the call.
void what_is_unsupported_touches_nobody(void**) {
  const Body body = [](rank_t* self, dsc::Comm& world) {
    Buffer<float> buffer(world, {1});
    Call bitwise = sum_of(buffer), by_user = sum_of(buffer);
    bitwise.op = DSC_OP_BXOR;
    bitwise.dtype = DSC_DTYPE_I32;
    by_user.op = dsc::kUserOp;
    by_user.user = std::make_shared<const dsc::UserOp>();
    for (const Call& call : {bitwise, by_user})
      if (world.rank() == 0 && world.unsupported_reason(call))
        CHECK(self, failure_of([&] { complete(world, call); }).code == DSC_ERR_UNSUPPORTED);
    return works(self, world);
  };
  assert_int_equal(run(4, body), 0);
}

void groups_are_made_alike(void**) {
  const Body body = [](rank_t* self, dsc::Comm& world) {
    const int half = world.rank() % 2, key = -world.rank();  // ranks are in reverse order
    const auto pair = world.split(half, key, {"pairs", 12'345});
    CHECK(self, pair && pair->size() == 2 && pair->name() == "pairs" && pair->timeout_ms() == 12'345);
    CHECK(self, pair->global_rank(0) == half + 2 && pair->global_rank(1) == half);
    CHECK(self, pair->id() != world.id());
    PASS_ON(works(self, *pair));
    const auto ids = dsc::gather_all(world, OpKind::kVerify, 1, pair->id());
    CHECK(self, ids[0] == ids[2] && ids[1] == ids[3] && ids[0] != ids[1]);
    const bool is_member = world.rank() != 2;
    CHECK(self, static_cast<bool>(world.split(is_member ? 0 : -1, 0, {})) == is_member);
    const std::vector<int32_t> listed = {3, 0, 1};
    const auto three = world.create_group(listed, {});
    CHECK(self, static_cast<bool>(three) == is_member);
    if (!three) return 0;
    CHECK(self, three->rank() == (world.rank() + 1) % 4 && three->timeout_ms() == world.timeout_ms());
    const auto nested = three->split(0, 0, {});
    CHECK(self, nested->global_rank(0) == 3 && nested->name() != three->name());
    return works(self, *nested);
  };
  assert_int_equal(run(4, body), 0);
}

// An internal group fails and ends together with the group that uses it.
void channels_share_the_end(void**) {
  const Body body = [](rank_t* self, dsc::Comm& world) {
    auto group = group_of_all(world);
    const auto channel = group->make_channel("channel");
    PASS_ON(works(self, *channel));
    PASS_ON(ranks_meet(self));
    if (world.rank() == 0) group->abort();
    Buffer<float> buffer(*channel, {1});
    const dsc::Failure failure = failure_of([&] { complete(*channel, sum_of(buffer)); });
    if (failure.code != DSC_ERR_REVOKED) FAIL(self, "%d: %s", failure.code, failure.text.c_str());
    PASS_ON(ranks_meet(self));  // otherwise a rank might learn first of another rank that has left early
    group->leave();
    CHECK(self, failure_of([&] { complete(*channel, sum_of(buffer)); }).code == DSC_ERR_STATE);
    return works(self, world);
  };
  assert_int_equal(run(4, body), 0);
}

// An engine that cannot recover reports that on every rank, and the group still works.
void the_living_agree_and_go_on(void**) {
  const Body body = [](rank_t* self, dsc::Comm& world) {
    const auto group = group_of_all(world);
    int32_t agreed = 0;
    const int32_t flags = world.rank() == kLate ? 6 : 3;
    const dsc::Failure failure = failure_of([&] { agreed = group->agree_on(flags); });
    if (failure.code == DSC_ERR_UNSUPPORTED) return works(self, *group);
    CHECK(self, failure.code == DSC_OK && agreed == 2 && group->missing().empty());
    PASS_ON(ranks_meet(self));
    if (world.rank() == kLate) {
      group->leave();
      return works(self, world);
    }
    Buffer<float> buffer(*group, {1});
    CHECK(self, failure_of([&] { complete(*group, sum_of(buffer)); }).code == DSC_ERR_PEER_LEFT);
    const auto rest = group->shrink({});
    CHECK(self, group->missing() == std::vector<int32_t>{kLate} && rest->size() == world.size() - 1);
    CHECK(self, rest->rank() == (world.rank() < kLate ? world.rank() : world.rank() - 1));
    PASS_ON(works(self, *rest));
    return works(self, world);
  };
  assert_int_equal(run(4, body), 0);
}

}  // namespace suite
