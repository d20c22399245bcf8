#include "dscrun/work.hpp"

#include "dscrun/environment.hpp"
#include "dscrun/launchers.hpp"

namespace dscrun {
namespace {

// Returns the environment of a launcher. The launcher passes variables to the other hosts; its command line
// contains only the name of the token's variable.
std::vector<std::string> launcher_environment(const Options& options, const std::string& token) {
  std::vector<std::string> environment = own_environment();
  drop_variables(environment, {"DSC_TOKEN"});
  environment.push_back("DSC_TOKEN=" + token);
  for (const std::string& assignment : options.extra_env) set_variable(environment, assignment);
  return environment;
}

}  // namespace

Work make_work(const Options& options, const Plan& plan, int restart_count, const std::string& token) {
  Work work;
  if (plan.way == Way::kMpirun || plan.way == Way::kSrun) {
    work.launcher = node_launcher(options, plan, restart_count);
    work.environment = launcher_environment(options, token);
    return work;
  }
  for (size_t i = 0; i < plan.nodes.size(); ++i) {
    const Node& node = plan.nodes[i];
    if (plan.way == Way::kByHand && static_cast<int>(i) != plan.own_node) continue;
    HostJob host_job{make_job(options, plan, i, restart_count, token), std::nullopt};
    if (plan.way == Way::kSsh && !node.is_here) host_job.remote = node;
    work.host_jobs.push_back(std::move(host_job));
  }
  return work;
}

}  // namespace dscrun
