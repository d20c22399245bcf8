#include "dscrun/launchers.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <string_view>

#include "dscrun/environment.hpp"
#include "dscrun/job.hpp"
#include "dscrun/remote.hpp"
#include "dscrun/shell.hpp"

namespace dscrun {
namespace {

std::string join(const Words& words, const char* separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

std::string host_names(const Plan& plan) {
  Words names;
  for (const Node& node : plan.nodes) names.push_back(node.host);
  return plan.nodes.front().host.empty() ? "" : join(names, ",");
}

std::string seconds(Millis time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.10g", std::chrono::duration<double>(time).count());
  return text;
}

// Returns the arguments with which a dscrun runs the ranks of its own host.
Words node_words(const Options& options, const Plan& plan, int restart_count) {
  Words counts;
  for (const Node& node : plan.nodes) counts.push_back(std::to_string(node.ranks));
  Words words = {options.remote_dscrun.empty() ? own_path() : options.remote_dscrun,
                 "--nnodes",
                 std::to_string(plan.nodes.size()),
                 "--node-rank",
                 "auto",
                 "-n",
                 plan.equal_nodes() ? counts.front() : join(counts, ","),
                 "--master-addr",
                 plan.master_addr,
                 "--master-port",
                 std::to_string(plan.port),
                 "--job-id",
                 plan.job_id + (restart_count > 0 ? "." + std::to_string(restart_count) : ""),
                 "--restart-count",
                 std::to_string(restart_count),
                 "--grace",
                 seconds(options.grace)};
  if (!host_names(plan).empty()) append(words, {"--node-list", host_names(plan)});
  if (!options.prefix) words.push_back("--no-prefix");
  if (isatty(STDOUT_FILENO) != 1) words.push_back("--no-color");
  words.push_back("--");
  append(words, options.command);
  return words;
}

// True for MPICH's mpirun, whose options differ from those of Open MPI.
bool is_hydra() {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen("mpirun --version 2>/dev/null", "re"), pclose);
  std::array<char, 4096> text{};
  return pipe && std::fread(text.data(), 1, text.size() - 1, pipe.get()) > 0 &&
         std::string_view(text.data()).find("HYDRA") != std::string_view::npos;
}

Words node_mpirun(const Options& options, const Plan& plan) {
  const std::string count = std::to_string(plan.nodes.size()), hosts = host_names(plan);
  if (is_hydra()) {
    Words words = {"mpirun", "-n", count, "-ppn", "1"};
    if (!hosts.empty()) append(words, {"-hosts", hosts});
    return words;
  }
  // If a dscrun were bound to a core, all its ranks would be bound to that core.
  Words words = {"mpirun", "-np", count, "--bind-to", "none"};
  append(words, hosts.empty() ? Words{"--map-by", "ppr:1:node"} : Words{"--host", hosts});
  append(words, {"-x", "DSC_TOKEN"});
  for (const std::string& name : exported_names(options)) append(words, {"-x", name});
  return words;
}

Words node_srun(const Plan& plan) {
  const std::string count = std::to_string(plan.nodes.size()), hosts = host_names(plan);
  Words words = {"srun", "--nodes=" + count, "--ntasks=" + count, "--ntasks-per-node=1"};
  if (!hosts.empty()) words.push_back("--nodelist=" + hosts);
  append(words, {"--cpu-bind=none", "--kill-on-bad-exit=1", "--export=ALL"});
  return words;
}

}  // namespace

std::vector<std::string> exported_names(const Options& options) {
  Words assignments = forwarded_environment();
  append(assignments, options.extra_env);
  return variable_names(assignments);
}

std::vector<std::string> node_launcher(const Options& options, const Plan& plan, int restart_count) {
  Words words = plan.way == Way::kSrun ? node_srun(plan) : node_mpirun(options, plan);
  append(words, node_words(options, plan, restart_count));
  return words;
}

}  // namespace dscrun
