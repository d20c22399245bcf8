// The processes of one start of a job: the ranks of this host and the dscruns of other hosts, or a single
// launcher.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dscrun/job.hpp"
#include "dscrun/plan.hpp"

namespace dscrun {

struct HostJob {
  NodeJob job;
  std::optional<Node> remote;  // nullopt: this host
};

struct Work {
  std::vector<HostJob> host_jobs;
  std::vector<std::string> launcher;     // mpirun or srun with its arguments, instead of host_jobs
  std::vector<std::string> environment;  // of the launcher, as NAME=VALUE
};

Work make_work(const Options& options, const Plan& plan, int restart_count, const std::string& token);

}  // namespace dscrun
