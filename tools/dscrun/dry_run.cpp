#include "dscrun/dry_run.hpp"

#include <nlohmann/json.hpp>

#include "dscrun/launchers.hpp"
#include "dscrun/remote.hpp"
#include "dscrun/shell.hpp"

namespace dscrun {
namespace {

using Json = nlohmann::ordered_json;

const char* name(Way way) {
  switch (way) {
    case Way::kHere:
      return "here";
    case Way::kByHand:
      return "by hand";
    case Way::kSsh:
      return "ssh";
    case Way::kMpirun:
      return "mpirun";
    case Way::kSrun:
      return "srun";
  }
  return "";
}

Json describe_node(const Options& options, const Plan& plan, size_t index) {
  const Node& node = plan.nodes[index];
  Json json = {{"node_rank", index}, {"first_rank", node.first_rank}, {"ranks", node.ranks}};
  if (!node.host.empty()) json["host"] = node.host;
  if (!node.devices.empty()) json["CUDA_VISIBLE_DEVICES"] = node.devices;
  if (plan.way == Way::kSsh && !node.is_here)
    json["start"] = shell_join(connect_command(options, node.host, static_cast<int>(index)));
  return json;
}

}  // namespace

std::string dry_run(const Options& options, const Plan& plan) {
  Json json = {{"way", name(plan.way)},    {"world_size", plan.world_size}, {"master_addr", plan.master_addr},
               {"master_port", plan.port}, {"job_id", plan.job_id},         {"command", options.command}};
  if (plan.way == Way::kByHand) json["own_node"] = plan.own_node;
  if (plan.way == Way::kMpirun || plan.way == Way::kSrun)
    json["start"] = shell_join(node_launcher(options, plan, 0));
  if (plan.several_hosts()) json["environment"] = exported_names(options);
  json["nodes"] = Json::array();
  for (size_t i = 0; i < plan.nodes.size(); ++i) json["nodes"].push_back(describe_node(options, plan, i));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace dscrun
