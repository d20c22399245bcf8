#include "dscrun/explain.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include "dscrun/environment.hpp"
#include "dscrun/shell.hpp"

namespace dscrun {
namespace {

std::string whole_seconds(Millis time) {
  return std::to_string(std::chrono::ceil<std::chrono::seconds>(time).count());
}

std::string minutes_and_seconds(Millis time) {
  const auto total = std::chrono::ceil<std::chrono::seconds>(time).count();
  return std::to_string(total / 60) + (total % 60 < 10 ? ":0" : ":") + std::to_string(total % 60);
}

std::string count_of(const Plan& plan) { return std::to_string(plan.nodes.size()); }

bool has_devices(const Plan& plan) {
  return std::any_of(plan.nodes.begin(), plan.nodes.end(), [](const Node& n) { return !n.devices.empty(); });
}

std::string list_hosts(const Plan& plan, bool with_slots) {
  std::string text;
  for (const Node& node : plan.nodes)
    text += (text.empty() ? "" : ",") + node.host + (with_slots ? ":" + std::to_string(node.ranks) : "");
  return plan.nodes.front().host.empty() ? "" : text;
}

// Returns the address at which the ranks meet. On one host only the port matters.
Words meeting_variables(const Plan& plan) {
  return {"MASTER_ADDR=" + plan.master_addr, "MASTER_PORT=" + std::to_string(plan.port)};
}

std::string mpirun_command(const Options& options, const Plan& plan) {
  Words words = {"mpirun", "-np", std::to_string(plan.world_size)};
  if (const std::string hosts = list_hosts(plan, true); !hosts.empty()) {
    append(words, {"--host", hosts});
  } else if (plan.several_hosts() && plan.equal_nodes()) {
    append(words, {"--map-by", "ppr:" + std::to_string(plan.nodes.front().ranks) + ":node"});
  }
  if (options.prefix) words.push_back("--tag-output");
  if (options.timeout) append(words, {"--timeout", whole_seconds(*options.timeout)});
  if (options.keep_going || options.allowed_failures > 0) words.push_back("--enable-recovery");
  Words variables = meeting_variables(plan);
  append(variables, variable_names(options.extra_env));
  for (const std::string& variable : variables) append(words, {"-x", variable});
  append(words, options.command);
  return shell_join(words);
}

std::string srun_command(const Options& options, const Plan& plan) {
  Words words = {"env"};
  append(words, meeting_variables(plan));
  append(words, {"srun", "--nodes=" + count_of(plan), "--ntasks=" + std::to_string(plan.world_size)});
  if (plan.equal_nodes()) words.push_back("--ntasks-per-node=" + std::to_string(plan.nodes.front().ranks));
  if (const std::string hosts = list_hosts(plan, false); !hosts.empty() && plan.several_hosts())
    words.push_back("--nodelist=" + hosts);
  if (options.prefix) words.push_back("--label");
  if (options.timeout) words.push_back("--time=" + minutes_and_seconds(*options.timeout));
  words.push_back(options.keep_going || options.allowed_failures > 0 ? "--kill-on-bad-exit=0"
                                                                     : "--kill-on-bad-exit=1");
  words.push_back("--export=ALL");
  append(words, options.command);
  return shell_join(words);
}

// torchrun starts Python files and modules with Python, and anything else only with --no_python.
Words torchrun_program(const Words& command) {
  const std::string_view program = std::string_view(command.front()).substr(command.front().rfind('/') + 1);
  const bool python = program == "python" || program == "python3";
  if (python && command.size() > 1 && (command[1] == "-m" || !command[1].starts_with('-')))
    return Words(command.begin() + 1, command.end());
  Words words = {"--no_python"};
  append(words, command);
  return words;
}

std::string torchrun_command(const Options& options, const Plan& plan, size_t node) {
  Words words;
  if (options.timeout) append(words, {"timeout", whole_seconds(*options.timeout)});
  append(
      words,
      {"torchrun", "--nnodes=" + count_of(plan), "--nproc_per_node=" + std::to_string(plan.nodes[node].ranks),
       "--node_rank=" + std::to_string(node), "--master_addr=" + plan.master_addr,
       "--master_port=" + std::to_string(plan.port), "--max_restarts=" + std::to_string(options.restarts)});
  append(words, torchrun_program(options.command));
  return shell_join(words);
}

std::string torchrun_commands(const Options& options, const Plan& plan) {
  std::string text;
  for (size_t i = 0; i < plan.nodes.size(); ++i) {
    text += (i > 0 ? "\n" : "") + torchrun_command(options, plan, i);
    const std::string& host = plan.nodes[i].host;
    if (plan.several_hosts()) text += "  # on " + (host.empty() ? "node " + std::to_string(i) : host);
  }
  return text;
}

// An option or feature of dscrun, and for each launcher a remark about what the launcher does instead. The
// remark is null if the launcher has an equivalent, or if no remark is needed.
struct Gap {
  bool wanted;  // this job uses the option or feature
  const char* option;
  const char* mpirun;
  const char* srun;
  const char* torchrun;
};

std::vector<Gap> find_gaps(const Options& options, const Plan& plan) {
  const bool named = !plan.nodes.front().host.empty();
  const bool apart = plan.several_hosts();
  constexpr const char* kNoSlots = "cannot select slots: set CUDA_VISIBLE_DEVICES on each host yourself";
  constexpr const char* kNoToken =
      "creates no token: set and export DSC_TOKEN (64 hexadecimal digits) yourself";
  return {
      {options.restarts > 0, "--restarts", "never restarts a job", "never restarts a job", nullptr},
      {options.allowed_failures > 0, "--allow-failures", "lets any number of ranks fail",
       "lets any number of ranks fail", "ends all ranks at the first failure"},
      {options.keep_going, "--keep-going", nullptr, nullptr, "ends all ranks at the first failure"},
      {options.grace != Options().grace, "--grace", "uses its own times", "KillWait of slurm.conf applies",
       "uses its own times"},
      {!options.prefix, "--no-prefix", nullptr, nullptr, nullptr},
      {has_devices(plan), "slots", kNoSlots, kNoSlots, kNoSlots},
      {apart && !named && !plan.equal_nodes(), "-n",
       "needs the names of the hosts if hosts have different numbers of ranks", nullptr, nullptr},
      {apart && !plan.equal_nodes(), "slots", nullptr,
       "different numbers of ranks need --distribution=arbitrary and a SLURM_HOSTFILE", nullptr},
      {apart, "token", kNoToken, kNoToken, kNoToken},
  };
}

std::string lacks(const std::vector<Gap>& gaps, const char* Gap::*launcher) {
  std::string text;
  for (const Gap& gap : gaps)
    if (gap.wanted && gap.*launcher != nullptr)
      text += "#   no equivalent for " + std::string(gap.option) + ": " + gap.*launcher + "\n";
  return text;
}

// All three launchers take the variables from their own environment. On a command line, other users could
// read the values.
std::string needed_variables(const Options& options) {
  std::string text;
  for (const std::string& name : variable_names(options.extra_env)) text += " " + name;
  return text.empty() ? "" : "# First set and export the variables of --env and --export:" + text + "\n";
}

}  // namespace

std::string explain(const Options& options, const Plan& plan) {
  const std::vector<Gap> gaps = find_gaps(options, plan);
  return needed_variables(options) + "# Open MPI\n" + mpirun_command(options, plan) + "\n" +
         lacks(gaps, &Gap::mpirun) + "# Slurm\n" + srun_command(options, plan) + "\n" +
         lacks(gaps, &Gap::srun) + "# PyTorch\n" + torchrun_commands(options, plan) + "\n" +
         lacks(gaps, &Gap::torchrun);
}

}  // namespace dscrun
