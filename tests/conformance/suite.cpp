// The rules of the engine interface, which every engine must follow. To run them for a new engine:
//   1. Add the engine to the engine table, or, as added.cpp does, define added_group_library() for this
//      program only.
//   2. Add a line to `suite_engines` in tests/conformance/meson.build: the environment in which start-up
//      chooses the engine, and the sources and dependencies that define it if it is not in the table.
//   3. ./dev test 'engine_*_NAME'
//
// Then run the tests of tests/ranks with it, which use only the C interface. The lists in
// tests/ranks/meson.build and tests/gpu/meson.build say which tests apply to which engine, and why others do
// not.
//
// Memory cases use Space: host memory, or the device of an engine for devices. Cases leave out what the
// engine's unsupported_reason() refuses. One case checks that it refuses before another rank can notice.
#include "suite.hpp"

#include "base/process_guard.hpp"
#include "session/start_up.hpp"

extern "C" {
#include "cmocka_c.h"  // included last because it defines a macro fail()
}

namespace suite {
namespace {

dsc::InitOptions options_of(const rank_t& self) {
  dsc::InitOptions options;
  options.job_id = self.options.job_id;
  options.backend = self.options.backend;
  options.device = self.options.device;
  options.rank = self.options.rank;
  options.world_size = self.options.world_size;
  options.rank_per_thread = self.options.rank_per_thread;
  options.init_timeout_ms = self.options.init_timeout_ms;
  options.timeout_ms = self.options.timeout_ms;
  return options;
}

int run_rank(rank_t* self) {
  const Body body = *static_cast<const Body*>(self->arg);
  int failed = 0;
  dsc::mark_process();
  dsc::capture(
      [&] {
        const auto world = dsc::start_world(options_of(*self), 0);
        failed = body(self, *world);
        if (failed == 0 && !world->failure().revoked) world->finalize();
        world->leave();
        world->end_world();
      },
      [&](const dsc::Error& error) { failed = rank_fail(self, __FILE__, __LINE__, "%s", error.what()); });
  return failed;
}

}  // namespace

int run(int size, Body body) { return run_without_world(size, run_rank, &body); }

}  // namespace suite

int main() {
  using namespace suite;
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_kind_moves_its_data),
      cmocka_unit_test(internal_kinds_gather),
      cmocka_unit_test(messages_keep_their_order),
      cmocka_unit_test(a_batch_is_one_operation),
      cmocka_unit_test(memory_is_zeroed),
      cmocka_unit_test(operations_are_counted),
      cmocka_unit_test(a_work_ends_once),
      cmocka_unit_test(progress_waits_for_all_worlds),
      cmocka_unit_test(a_deadline_fails_the_group),
      cmocka_unit_test(different_calls_are_a_mismatch),
      cmocka_unit_test(different_messages_are_a_mismatch),
      cmocka_unit_test(a_rank_that_leaves_is_named),
      cmocka_unit_test(a_revoked_group_keeps_its_first_cause),
      cmocka_unit_test(what_is_unsupported_touches_nobody),
      cmocka_unit_test(groups_are_made_alike),
      cmocka_unit_test(channels_share_the_end),
      cmocka_unit_test(the_living_agree_and_go_on),
      cmocka_unit_test(memory_computes),
      cmocka_unit_test(memory_packs_tensors),
      cmocka_unit_test(memory_has_norms),
      cmocka_unit_test(memory_keeps_the_order),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
