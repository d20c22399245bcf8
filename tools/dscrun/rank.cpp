#include "dscrun/rank.hpp"

#include <signal.h>

#include <array>
#include <utility>

#include "dscrun/environment.hpp"
#include "dscrun/remote.hpp"
#include "dscrun/token.hpp"

namespace dscrun {
namespace {

// Removes variables of other launchers, because those that an outer launcher set for its child would
// contradict this job.
std::vector<std::string> base_environment(const NodeJob& job) {
  std::vector<std::string> environment = own_environment();
  drop_variables(environment, {"TORCHELASTIC_", "CROSS_SIZE=", "CROSS_RANK=", "LOCAL_SIZE=", "DSC_TOKEN"});
  if (job.foreign) drop_variables(environment, {"OMPI_", "PMIX_", "PMI_"});
  return environment;
}

std::vector<std::string> make_environment(const NodeJob& job, int rank, int token_fd) {
  std::vector<std::string> environment = base_environment(job);
  // LOCAL_RANK counts from 0 on every host. DeepSpeed instead uses the rank modulo the number of slots, which
  // differs if hosts have different numbers of slots.
  const std::array own = {"RANK=" + std::to_string(rank),
                          "WORLD_SIZE=" + std::to_string(job.world_size),
                          "LOCAL_RANK=" + std::to_string(rank - job.first_rank),
                          "LOCAL_WORLD_SIZE=" + std::to_string(job.ranks),
                          "GROUP_RANK=" + std::to_string(job.node_rank),
                          "GROUP_WORLD_SIZE=" + std::to_string(job.node_count),
                          std::string("DSC_LAUNCHER=dscrun"),
                          "DSC_JOB_ID=" + job.job_id,
                          "DSC_RESTART_COUNT=" + std::to_string(job.restart_count),
                          "MASTER_ADDR=" + job.master_addr,
                          "MASTER_PORT=" + std::to_string(job.port)};
  for (const std::string& assignment : own) set_variable(environment, assignment);
  if (token_fd >= 0) set_variable(environment, "DSC_TOKEN_FD=" + std::to_string(token_fd));
  if (!job.devices.empty()) set_variable(environment, "CUDA_VISIBLE_DEVICES=" + job.devices);
  for (const std::string& assignment : job.environment) set_variable(environment, assignment);
  return environment;
}

}  // namespace

void Rank::send_signal(int signal) const {
  if (!running()) return;
  if (remote != nullptr) return remote->send_signal(number, signal);
  kill(in_front_group ? process.pid : -process.pid, signal);
}

Rank start_rank(const NodeJob& job, int number, pid_t front_group, bool reads_input) {
  const UniqueFd token = job.token.empty() ? UniqueFd() : token_file(job.token);
  Rank rank;
  rank.number = number;
  rank.name = "rank " + std::to_string(number);
  rank.in_front_group = number == 0 && front_group != 0;
  rank.process = start_process({.name = rank.name,
                                .command = job.command,
                                .environment = make_environment(job, number, token.get()),
                                .input = number == 0 && reads_input ? Input::kOurs : Input::kNothing,
                                .group = number == 0 ? front_group : 0,
                                .kept_fd = token.get()});
  return rank;
}

}  // namespace dscrun
