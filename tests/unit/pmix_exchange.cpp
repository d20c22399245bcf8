// One rank under a launcher that is a PMIx server:
//   pmix_exchange MODE FOLDER
// The outcome is written to FOLDER/RANK, one line per step: "MILLISECONDS CODE TEXT".
//   all      two worlds; every rank gets the value of every rank
//   missing  a key that no rank puts
//   late     rank 0 puts its key after the other ranks asked for it
//   dead     rank 1 puts one key and dies
//   silent   rank 0 stops the server for a while
//   orphaned rank 0 kills the server
//   notify   rank 0 sends itself the end of rank 1, of another job and of this job, as a server would
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>

#include "base/error.hpp"
#include "bootstrap/pmix_events.hpp"
#include "bootstrap/pmix_exchange.hpp"
#include "bootstrap/unix_socket.hpp"
#include "stopped.hpp"

using namespace dsc;

namespace {

struct Rank {
  const PmixSession& session;
  PmixJob job;
  std::FILE* out;

  // Reports the result or the error of `body`.
  void report(const std::function<std::string()>& body) const {
    const int64_t start_ns = now_ns();
    dsc_result_t code = DSC_OK;
    std::string text;
    try {
      text = body();
    } catch (const Error& error) {
      code = error.code();
      text = error.what();
    }
    std::fprintf(out, "%lld %s %s\n", static_cast<long long>((now_ns() - start_ns) / kNsPerMs),
                 code == DSC_OK ? "ok" : result_name(code), text.c_str());
    std::fflush(out);
  }
};

void pause_ms(int64_t ms) { sleep_until(Deadline::after_ms(ms)); }
Deadline soon() { return Deadline::after_ms(20'000); }

void exchange_all(const Rank& rank) {
  for (uint32_t world = 0; world < 2; ++world)
    rank.report([&] {
      PmixExchange exchange(rank.session, world);
      // the first byte is the rank, so rank 0 puts a value that contains a zero byte
      const std::string own(1, static_cast<char>(rank.job.rank));
      exchange.put("rank", own + "of world " + std::to_string(world), soon());
      std::string all;
      for (int32_t owner = 0; owner < rank.job.size; ++owner) {
        const std::string value = exchange.get("rank", owner, soon());
        if (value[0] != static_cast<char>(owner)) fail(DSC_ERR_PROTOCOL, "not what rank %d put", owner);
        all += value.substr(1) + ";";
      }
      return all;
    });
}

void miss(const Rank& rank) {
  PmixExchange exchange(rank.session, 0);
  rank.report([&] { return exchange.put("there", "x", soon()), ""; });
  // one deadline before, and one after the time limit that get() gives the server for one request
  for (const int64_t ms : {300, 2500})
    rank.report([&] { return exchange.get("missing", rank.job.size - 1, Deadline::after_ms(ms)); });
  rank.report([&] { return exchange.get("there", 0, soon()); });
}

void come_late(const Rank& rank) {
  PmixExchange exchange(rank.session, 0);
  exchange.put("early", "x", soon());  // gives the server a value of every rank, but not the requested one
  if (rank.job.rank == 0) {
    pause_ms(3000);
    exchange.put("late", "here", soon());
  }
  rank.report([&] { return exchange.get("late", 0, soon()); });
}

void lose_one(const Rank& rank) {
  PmixExchange exchange(rank.session, 0);
  if (rank.job.rank == 1) {
    exchange.put("before", "its last word", soon());
    exchange.get("ready", 0, soon());
    ::kill(::getpid(), SIGKILL);
  }
  rank.report([&] { return exchange.get("before", 1, soon()); });
  exchange.put("ready", "", soon());
  pause_ms(500);
  rank.report([&] { return exchange.get("before", 1, soon()); });
  rank.report([&] { return exchange.get("after", 1, Deadline::after_ms(700)); });
  pause_ms(1500);
  rank.report([&] {
    std::string events;
    for (const PmixEvent& event : pmix_events())
      events += "status " + std::to_string(event.status) + " of rank " + std::to_string(event.rank) + ";";
    return events;
  });
}

void silence(const Rank& rank) {
  PmixExchange exchange(rank.session, 0);
  exchange.put("before", "x", soon());
  exchange.get("before", rank.job.size - 1, soon());
  if (rank.job.rank != 0) {
    rank.report([&] { return exchange.get("over", 0, soon()); });
    return;
  }
  const pid_t server = ::getppid();
  dsc::test::stop_process(server);
  rank.report([&] { return exchange.get("none", 1, Deadline::after_ms(500)); });
  rank.report([&] { return exchange.put("unheard", "x", Deadline::after_ms(500)), ""; });
  ::kill(server, SIGCONT);
  pause_ms(300);  // The answer to the request that timed out arrives now, when nothing waits for it.
  rank.report([&] { return exchange.put("over", "well", soon()), ""; });
}

void lose_server(const Rank& rank) {
  PmixExchange exchange(rank.session, 0);
  exchange.put("before", "x", soon());
  exchange.get("before", rank.job.size - 1, soon());
  if (rank.job.rank == 0) ::kill(::getppid(), SIGKILL);
  rank.report([&] { return exchange.get("none", 0, soon()); });
  rank.report([&] { return exchange.put("unheard", "x", Deadline::after_ms(500)), ""; });
  for (int i = 0; i < 1000 && pmix_events().empty(); ++i) pause_ms(20);
  rank.report([] { return pmix_events().empty() ? "none" : std::to_string(pmix_events().at(0).status); });
}

// Sends this rank the events that a server would send. A server may repeat an event, even after a later
// event.
void notify(const Rank& rank) {
  using Notify = decltype(PMIx_Notify_event);
  void* library = dlopen(rank.session.library().path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  const auto call = reinterpret_cast<Notify*>(dlsym(library, "PMIx_Notify_event"));
  const pmix_proc_t self = rank.session.member(0);
  pmix_proc_t ended[] = {rank.session.member(1), rank.session.member(1)};
  std::strcpy(ended[0].nspace, "another job");
  for (size_t told = 0; told < 2; ++told) {
    pmix_info_t info{};
    std::strcpy(info.key, PMIX_EVENT_AFFECTED_PROC);
    info.value.type = PMIX_PROC;
    info.value.data.proc = &ended[told];
    call(PMIX_ERR_PROC_ABORTED_BY_SIG, &self, PMIX_RANGE_PROC_LOCAL, &info, 1, nullptr, nullptr);
    const auto is_told = [rank = told == 0 ? -1 : 1](const PmixEvent& event) { return event.rank == rank; };
    for (int i = 0; i < 1000 && std::ranges::none_of(pmix_events(), is_told); ++i) pause_ms(20);
    rank.report([&] {
      const auto all = pmix_events();
      const auto found = std::ranges::find_if(all, is_told);
      if (found == all.end()) return std::to_string(all.size()) + " events, of which none is the one";
      return std::to_string(found->status) + " of rank " + std::to_string(found->rank);
    });
  }
}

int run(const std::string& mode, const std::string& folder) {
  const PmixSession& session = PmixSession::connect(process_environment(), soon());
  Rank rank{session, session.job(), nullptr};
  rank.out = std::fopen((folder + "/" + std::to_string(rank.job.rank)).c_str(), "w");
  if (!rank.out) fail_errno(errno, "%s", folder.c_str());
  const struct {
    const char* name;
    void (*run)(const Rank&);
  } modes[] = {{"all", exchange_all}, {"missing", miss},         {"late", come_late}, {"dead", lose_one},
               {"silent", silence},   {"orphaned", lose_server}, {"notify", notify}};
  for (const auto& known : modes)
    if (mode == known.name) known.run(rank);
  std::fclose(rank.out);
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  return argc == 3 ? run(argv[1], argv[2]) : 2;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
