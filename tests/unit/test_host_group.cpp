// A host group of one rank, and what it announces in the job's store when it closes.
#include "bootstrap/store_meeting_host.hpp"
#include "control/host_group.hpp"
#include "job_support.hpp"

namespace {

using namespace dsc;
using namespace dsc::test;

// Two connections to a job's store. `served` also runs the server, as rank 0 does. `held` belongs to the
// world of another rank.
struct Job {
  std::shared_ptr<JobStore> served = open_job(0, true);
  std::shared_ptr<JobStore> held = open_job(served->target().port, false);

  bool is_closing() const {
    const std::string key(kClosingKey);
    return served->store().check({&key, 1}, soon());
  }
};

std::shared_ptr<HostGroup> make_world() {
  HostGroupSettings settings;
  settings.meeting.deadline = soon();
  return HostGroup::join(settings);
}

void a_failure_is_announced_after_an_end(void**) {
  const Job job;
  const auto host = make_world();
  host->hold_name(job.held);
  // as if another process ended; the rank that serves the store announces the end
  host->begin_closing(false);
  assert_false(job.is_closing());
  host->begin_closing(true);
  assert_true(job.is_closing());
}

void a_failure_of_a_tentative_world_is_announced(void**) {
  const Job job;
  const auto host = make_world();
  host->hold_name(job.held);
  host->set_tentative(true);
  host->begin_closing(true);
  assert_true(job.is_closing());
}

void a_failure_before_the_store_came_is_announced(void**) {
  const Job job;
  const auto host = make_world();
  host->begin_closing(true);
  host->hold_name(job.held);
  assert_true(job.is_closing());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_failure_is_announced_after_an_end),
      cmocka_unit_test(a_failure_of_a_tentative_world_is_announced),
      cmocka_unit_test(a_failure_before_the_store_came_is_announced),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
