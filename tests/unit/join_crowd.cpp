// Many ranks of one world in one process. Each rank is a thread. They meet through TCP as ranks of real jobs
// do.
//   join_crowd WORLD FIRST COUNT HOST PORT RANKS_PER_HOST TIMEOUT_MS
// RANKS_PER_HOST 0 means that all ranks report the identity of this host. The token is read from the
// environment. The program prints "ready" and starts the ranks after the first line on standard input. When
// all ranks have an outcome, it prints the outcomes as one line of JSON. For every further line it prints the
// resources that the process has used so far. The ranks leave at the end of standard input. With SIGNALS_HZ
// in the environment that many signals per second interrupt the ranks.
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <latch>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/thread.hpp"
#include "bootstrap/host_identity.hpp"
#include "bootstrap/rendezvous.hpp"
#include "json.hpp"

using namespace dsc;

namespace {

constexpr size_t kStackBytes = size_t{256} << 10;

struct Crowd {
  int32_t world, first, count;
  std::string host;
  int32_t port, ranks_per_host, timeout_ms;
};

struct Outcome {
  std::shared_ptr<JobStore> job;
  int64_t done_ns = 0;
  std::string error;  // empty if the rank has joined
  int32_t hosts = 0;
  size_t neighbours = 0;  // ranks on its host, including itself
};

class Rank {
 public:
  Rank(const Crowd& crowd, int32_t rank, std::latch& go) : go_(go) {
    const Environment environment = process_environment();
    rendezvous_.launch.rank = rank;
    rendezvous_.launch.world_size = crowd.world;
    rendezvous_.launch.master_addr = crowd.host;
    rendezvous_.launch.master_addr_from = "MASTER_ADDR";
    rendezvous_.launch.master_port = crowd.port;
    rendezvous_.environment = environment;
    settings_.master_addr = crowd.host;
    settings_.master_port = crowd.port;
    settings_.rank = rank;
    settings_.world_size = crowd.world;
    settings_.host_name = dsc::host_name(environment);
    settings_.host = host_identity(environment);
    if (crowd.ranks_per_host > 0) {
      settings_.host_name = "node" + std::to_string(rank / crowd.ranks_per_host);
      settings_.host += settings_.host_name;
      settings_.host.resize(std::min<size_t>(settings_.host.size(), 60));
    }
    settings_.endpoint = hex(random_nonce());
    settings_.config = "backend=host;timeout_ms=300000;stall_timeout_ms=30000;rank_per_thread=0";
    timeout_ms_ = crowd.timeout_ms;
  }

  void start() {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kStackBytes);
    const int error = pthread_create(
        &thread_, &attributes,
        [](void* self) -> void* {
          static_cast<Rank*>(self)->run();
          return nullptr;
        },
        this);
    pthread_attr_destroy(&attributes);
    if (error != 0) fail_errno(error, "starting a thread");
  }

  const Outcome& join() {
    pthread_join(thread_, nullptr);
    return outcome_;
  }

 private:
  void run() {
    go_.wait();
    settings_.deadline = Deadline::after_ms(timeout_ms_);
    try {
      Rendezvous done = meet_through_tcp(rendezvous_, settings_);
      outcome_.job = std::move(done.job);
      outcome_.hosts = done.met.layout.host_count();
      outcome_.neighbours = done.met.members.size();
    } catch (const Error& error) {
      outcome_.error = std::string(result_name(error.code())) + " " + error.what();
    }
    outcome_.done_ns = now_ns();
  }

  std::latch& go_;
  RendezvousSettings rendezvous_;
  MeetingSettings settings_;
  int32_t timeout_ms_ = 0;
  Outcome outcome_;
  pthread_t thread_{};
};

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

// Reads a value of /proc/self/status, in KiB.
int64_t status_kib(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name + ":")) return std::atoll(line.c_str() + name.size() + 1);
  return 0;
}

support::Json usage() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return support::Json::object({{"cpu_s", seconds(used.ru_utime) + seconds(used.ru_stime)},
                                {"rss_kib", status_kib("VmRSS")},
                                {"peak_kib", status_kib("VmHWM")}});
}

support::Json summary(std::vector<std::unique_ptr<Rank>>& ranks) {
  std::map<std::string, int> errors;
  std::map<std::string, int> shapes;
  int64_t last_ns = 0;
  for (const auto& rank : ranks) {
    const Outcome& outcome = rank->join();
    last_ns = std::max(last_ns, outcome.done_ns);
    if (outcome.error.empty())
      ++shapes[std::to_string(outcome.hosts) + " hosts, " + std::to_string(outcome.neighbours) + " here"];
    else
      ++errors[outcome.error];
  }
  support::Json text = usage();
  text["joined"] = shapes;
  text["errors"] = errors;
  text["done_ns"] = last_ns;
  return text;
}

// Without SA_RESTART the kernel does not restart a system call that a signal interrupts.
void send_signals(int hertz) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  ::sigaction(SIGALRM, &action, nullptr);
  const timeval period{0, 1'000'000 / hertz};
  const itimerval timer{period, period};
  ::setitimer(ITIMER_REAL, &timer, nullptr);
}

int run(const Crowd& crowd) {
  if (const auto hertz = process_environment()("SIGNALS_HZ")) send_signals(std::atoi(hertz->c_str()));
  std::latch go(1);
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int32_t i = 0; i < crowd.count; ++i) {
    ranks.push_back(std::make_unique<Rank>(crowd, crowd.first + i, go));
    ranks.back()->start();
  }
  const SignalsBlocked in_this_thread;  // signals must reach only the ranks
  std::cout << "ready" << std::endl;
  std::string line;
  std::getline(std::cin, line);
  go.count_down();
  std::cout << summary(ranks).dump() << std::endl;
  while (std::getline(std::cin, line)) std::cout << usage().dump() << std::endl;
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 8) return 2;
  return run({std::atoi(argv[1]), std::atoi(argv[2]), std::atoi(argv[3]), argv[4], std::atoi(argv[5]),
              std::atoi(argv[6]), std::atoi(argv[7])});
} catch (const Error& error) {
  std::cerr << result_name(error.code()) << " " << error.what() << std::endl;
  return 1;
}
