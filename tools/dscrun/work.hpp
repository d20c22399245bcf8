// What one start of a job runs: the ranks of this host and the dscruns of the others, or one launcher.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dscrun/job.hpp"
#include "dscrun/plan.hpp"

namespace dscrun {

struct Place {
  NodeJob job;
  std::optional<Node> remote;  // nothing: this host
};

struct Work {
  std::vector<Place> places;
  std::vector<std::string> launcher;     // mpirun or srun with its arguments, instead of places
  std::vector<std::string> environment;  // for it, NAME=VALUE
};

Work make_work(const Options& options, const Plan& plan, int restart_count, const std::string& token);

}  // namespace dscrun
