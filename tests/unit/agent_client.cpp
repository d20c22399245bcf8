// A client of a torchrun agent's store. It prints one line for the outcome of each step:
//   agent_client PORT TIMEOUT_MS [put KEY VALUE | get KEY OWNER]...
//   agent_client all        runs as a rank of torchrun, puts a value and gets the value of every rank
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/error.hpp"
#include "bootstrap/agent_store.hpp"
#include "bootstrap/launcher.hpp"

using namespace dsc;

namespace {

constexpr const char* kLoopback = "127.0.0.1";

// Prints the time in milliseconds, then "ok TEXT" or "CODE TEXT".
template <typename Body>
int report(Body body) {
  const int64_t start_ns = now_ns();
  std::string text;
  dsc_result_t code = DSC_OK;
  try {
    text = body();
  } catch (const Error& error) {
    code = error.code();
    text = error.what();
  }
  std::printf("%lld %s %s\n", static_cast<long long>((now_ns() - start_ns) / kNsPerMs),
              code == DSC_OK ? "ok" : result_name(code), text.c_str());
  std::fflush(stdout);
  return code == DSC_OK ? 0 : 1;
}

int run_steps(int count, char** words) {
  AgentStore store(kLoopback, std::atoi(words[0]), agent_prefix(process_environment(), 0));
  const int64_t timeout_ms = std::atoll(words[1]);
  int failed = 0;
  for (int i = 2; i + 2 < count; i += 3)
    failed |= report([&]() -> std::string {
      const Deadline deadline = Deadline::after_ms(timeout_ms);
      if (std::strcmp(words[i], "get") == 0)
        return store.get(words[i + 1], std::atoi(words[i + 2]), deadline);
      store.put(words[i + 1], words[i + 2], deadline);
      return "";
    });
  return failed;
}

std::string exchange_with_all() {
  const Environment environment = process_environment();
  const Deadline deadline = Deadline::after_ms(20'000);
  const Launch launch = find_launch(
      {}, environment, [](const std::string&) { return AddressLocation::kThisHost; },
      [] { return PmixJob{}; });
  if (!launch.agent_store) fail(DSC_ERR_CONFIG, "the agent has no store here:\n%s", launch.report.c_str());
  std::string all;
  for (uint32_t world = 0; world < 2; ++world) {  // the second world must not read the keys of the first one
    AgentStore store(launch.master_addr, launch.master_port, agent_prefix(environment, world));
    const std::string own = std::to_string(launch.rank) + "." + std::to_string(world);
    store.put("rank/" + std::to_string(launch.rank), own, deadline);
    for (int32_t rank = 0; rank < launch.world_size; ++rank)
      all += store.get("rank/" + std::to_string(rank), rank, deadline) + " ";
  }
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "all") == 0) return report(exchange_with_all);
  return argc >= 3 ? run_steps(argc - 1, argv + 1) : 2;
}
