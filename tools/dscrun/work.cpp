#include "dscrun/work.hpp"

#include <unistd.h>

#include <string_view>

#include "dscrun/launchers.hpp"

namespace dscrun {
namespace {

// The launcher carries variables to the other hosts; its command line only names the secret.
std::vector<std::string> launcher_environment(const Options& options, const std::string& token) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (!std::string_view(*entry).starts_with("DSC_TOKEN")) environment.emplace_back(*entry);
  environment.push_back("DSC_TOKEN=" + token);
  environment.insert(environment.end(), options.extra_env.begin(), options.extra_env.end());
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
    Place place{make_job(options, plan, i, restart_count, token), std::nullopt};
    if (plan.way == Way::kSsh && !node.is_here) place.remote = node;
    work.places.push_back(std::move(place));
  }
  return work;
}

}  // namespace dscrun
