// dscrun: runs a command once per rank, on this host or on several.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <stdexcept>

#include "dscrun/dry_run.hpp"
#include "dscrun/explain.hpp"
#include "dscrun/front.hpp"
#include "dscrun/options.hpp"
#include "dscrun/plan.hpp"
#include "dscrun/token.hpp"
#include "dscrun/work.hpp"

namespace dscrun {
namespace {

// Opens standard streams that are closed. Otherwise a pipe could get one of their numbers.
void open_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) _exit(kOwnFailure);
  }
}

// Runs the ranks of one host for another dscrun, which makes all decisions.
int run_as_node(Options options) {
  if (isatty(STDIN_FILENO) == 1) throw std::runtime_error("--as-node is used by dscrun only");
  const NodeJob job = read_job(STDIN_FILENO);
  if (chdir(job.directory.c_str()) != 0)
    throw std::runtime_error("cannot enter '" + job.directory + "': " + strerror(errno));
  options.grace = Millis(job.grace_ms);
  options.lost_after = Millis(job.lost_after_ms);
  options.keep_going = true;
  return run_front(options, [&job](int) {
    Work work;
    work.host_jobs.push_back({job, std::nullopt});
    return work;
  });
}

// Returns the token of the job. If each node is started by hand, no dscrun can pass a new token to the
// others.
std::string choose_token(const Plan& plan) {
  const auto given = given_token();
  if (given) return *given;
  const char* open = std::getenv("DSC_ALLOW_UNAUTHENTICATED");
  if (plan.way == Way::kByHand && (open == nullptr || std::string(open) != "1"))
    throw PlanError(
        "--nnodes: several hosts need the same token. Create a file once: (umask 077; od -An -N32 -tx1 "
        "/dev/urandom | tr -d ' \\n' > dsc-token). Copy it to every host, and set DSC_TOKEN_FILE to its path "
        "there. Or set DSC_ALLOW_UNAUTHENTICATED=1 to accept any process that connects");
  return plan.way == Way::kByHand ? std::string() : new_token();
}

int run(const Options& options) {
  if (options.as_node) return run_as_node(options);
  const Plan plan = make_plan(options);
  if (options.explain) std::cout << explain(options, plan);
  if (options.dry_run) std::cout << dry_run(options, plan);
  if (options.explain || options.dry_run) return std::cout.flush() ? kOk : kOwnFailure;
  const std::string token = choose_token(plan);
  return run_front(options,
                   [&](int restart_count) { return make_work(options, plan, restart_count, token); });
}

}  // namespace
}  // namespace dscrun

int main(int argc, char** argv) {
  dscrun::open_standard_streams();
  const auto parsed = dscrun::parse_options(argc, argv);
  if (const int* code = std::get_if<int>(&parsed)) return *code;
  try {
    return dscrun::run(std::get<dscrun::Options>(parsed));
  } catch (const dscrun::PlanError& error) {
    std::cerr << "dscrun: " << error.what() << "\nTry 'dscrun --help'.\n";
    return dscrun::kUsage;
  } catch (const std::exception& error) {
    std::cerr << "dscrun: " << error.what() << "\n";
    return dscrun::kOwnFailure;
  }
}
