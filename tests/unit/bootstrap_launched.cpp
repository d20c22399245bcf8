// One rank of a job that a real launcher started. It finds its rank, meets the other ranks, and checks what
// the launcher told it. Arguments: the launcher's name in the table, the number of ranks.
#include <cstdio>
#include <cstdlib>

#include "base/error.hpp"
#include "bootstrap/host_identity.hpp"
#include "bootstrap/launcher.hpp"
#include "bootstrap/local_address.hpp"
#include "bootstrap/meeting.hpp"

using namespace dsc;

namespace {

int run(const std::string& launcher, int32_t size) {
  const Deadline deadline = Deadline::after_ms(60'000);
  const Environment environment = process_environment();
  const auto locate = [&](const std::string& address) { return locate_address(address, deadline); };
  const Launch launch = find_launch({}, environment, locate, [&] { return ask_pmix(environment, deadline); });
  MeetingSettings settings;
  settings.master_addr = launch.master_addr;
  settings.master_port = launch.master_port;
  settings.job_id = launch.job_id;
  settings.rank = launch.rank;
  settings.world_size = launch.world_size;
  settings.local_rank = launch.local_rank;
  settings.host = host_identity(environment);
  settings.deadline = deadline;
  const MeetingResult result = meet(settings);
  bool right = launch.source == launcher && launch.world_size == size && launch.local_world_size == size;
  for (int32_t rank = 0; rank < size; ++rank)
    right = right && result.members.at(static_cast<size_t>(rank)).local_rank == rank;
  if (!right)
    std::fprintf(stderr, "expected %d ranks from %s; report:\n%s\n", size, launcher.c_str(),
                 launch.report.c_str());
  return right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  return argc == 3 ? run(argv[1], std::atoi(argv[2])) : 2;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
