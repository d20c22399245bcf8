#include "dscrun/plan.hpp"

#include <ifaddrs.h>
#include <netdb.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <numeric>
#include <string_view>

#include "dscrun/hosts.hpp"
#include "dscrun/token.hpp"

namespace dscrun {
namespace {

int core_count() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return 1;
  return std::clamp(CPU_COUNT(&cores), 1, kMaxRanks);
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// Host files of launchers often contain localhost, which is a different machine on each host.
bool is_loopback(std::string_view name) {
  return name == "localhost" || name.starts_with("127.") || name == "::1";
}

std::vector<std::string> own_names() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  std::vector<std::string> names = {host.data()};
  names.push_back(names.front().substr(0, names.front().find('.')));
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return names;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const int family = entry->ifa_addr != nullptr ? entry->ifa_addr->sa_family : AF_UNSPEC;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::array<char, NI_MAXHOST> text{};
    if (getnameinfo(entry->ifa_addr, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0)
      names.emplace_back(text.data());
  }
  return names;
}

std::vector<Host> read_hosts(const Options& options) {
  std::ifstream file(options.host_file);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file.is_open() || file.bad())
    throw PlanError("--hostfile: cannot read '" + options.host_file + "': " + strerror(errno));
  try {
    const std::vector<Host> hosts = parse_host_file(text);
    std::vector<Host> chosen = select_hosts(hosts, options.include, options.exclude);
    if (chosen.empty())
      throw PlanError("--exclude: excludes all hosts of '" + options.host_file +
                      "', expected one or more hosts that remain");
    return chosen;
  } catch (const HostError& error) {
    const bool in_file = std::string_view(error.what()).starts_with("line ") ||
                         std::string_view(error.what()).starts_with("contains no host");
    throw PlanError((in_file                   ? "--hostfile '" + options.host_file + "'"
                     : options.include.empty() ? std::string("--exclude")
                                               : "--include") +
                    ": " + error.what());
  }
}

std::string list_slots(const Host& host) {
  std::string text;
  if (host.selected)
    for (const int slot : host.slots) text += (text.empty() ? "" : ",") + std::to_string(slot);
  return text;
}

std::vector<Node> nodes_of_file(const Options& options) {
  const std::vector<std::string> own = own_names();
  std::vector<Node> nodes;
  for (const Host& host : read_hosts(options)) {
    Node node{.host = host.name, .ranks = static_cast<int>(host.slots.size()), .devices = list_slots(host)};
    node.is_here = is_loopback(host.name) || std::find(own.begin(), own.end(), host.name) != own.end();
    nodes.push_back(std::move(node));
  }
  if (options.nodes != 0 && options.nodes != static_cast<int>(nodes.size()))
    throw PlanError("--nnodes: expected " + std::to_string(nodes.size()) +
                    ", the number of hosts in the host file, got '" + std::to_string(options.nodes) + "'");
  return nodes;
}

// The number of cores differs between hosts, so only the user can know the world size.
std::vector<Node> nodes_by_number(const Options& options) {
  if (options.ranks.empty()) throw PlanError("--nnodes: expected -n too, the number of ranks on each host");
  const auto count = static_cast<size_t>(options.nodes);
  if (options.ranks.size() != 1 && options.ranks.size() != count)
    throw PlanError("-n: expected one number, or " + std::to_string(count) + " numbers for --nnodes " +
                    std::to_string(count) + ", got " + std::to_string(options.ranks.size()) + " numbers");
  std::vector<Node> nodes(count);
  for (size_t i = 0; i < count; ++i) nodes[i].ranks = options.ranks[options.ranks.size() == 1 ? 0 : i];
  return nodes;
}

// Like the deepspeed launcher without a host file: there is one host, localhost, and the selection names its
// slots. Slots are device numbers, which dscrun does not count, so any slot may be named.
Host select_slots_here(const Options& options) {
  if (!options.ranks.empty())
    throw PlanError("-n: cannot be given together with " +
                    std::string(options.include.empty() ? "--exclude" : "--include") +
                    ", which selects the slots; each of them gets one rank");
  const bool named = options.include.find(':') != std::string::npos;
  Host all{"localhost", std::vector<int>(static_cast<size_t>(named ? kMaxRanks : core_count()))};
  std::iota(all.slots.begin(), all.slots.end(), 0);
  try {
    std::vector<Host> chosen = select_hosts({all}, options.include, options.exclude);
    if (chosen.empty())
      throw PlanError("--exclude: excludes all slots of localhost, expected one or more slots that remain");
    if (!chosen.front().selected) chosen.front().slots.resize(static_cast<size_t>(core_count()));
    return chosen.front();
  } catch (const HostError& error) {
    throw PlanError(std::string(options.include.empty() ? "--exclude: " : "--include: ") + error.what() +
                    " (without --hostfile, the only host is localhost)");
  }
}

std::vector<Node> one_node(const Options& options) {
  if (!options.include.empty() || !options.exclude.empty()) {
    const Host host = select_slots_here(options);
    return {{.host = "",
             .ranks = static_cast<int>(host.slots.size()),
             .devices = list_slots(host),
             .is_here = true}};
  }
  if (options.ranks.size() > 1)
    throw PlanError("-n: expected one number for one host, got " + std::to_string(options.ranks.size()) +
                    " numbers");
  Node node;
  node.ranks = options.ranks.empty() ? core_count() : options.ranks.front();
  node.is_here = true;
  return {node};
}

void check_combination(const Options& options) {
  const bool file = !options.host_file.empty();
  if (!file && options.nodes > 0 && !(options.include + options.exclude).empty())
    throw PlanError(
        "--include and --exclude: with --nnodes, expected --hostfile too, the file with the names of the "
        "hosts");
  if (file && !options.ranks.empty())
    throw PlanError(
        "-n: cannot be given together with --hostfile: the slots in the host file give the number of ranks "
        "on each host. To start fewer ranks, select slots with --include");
  if (!options.node_rank.empty() && !file && options.nodes == 0)
    throw PlanError("--node-rank: expected --nnodes or --hostfile too");
  if (!options.node_rank.empty() && !options.start_with.empty())
    throw PlanError(
        "--start-with: cannot be given together with --node-rank: --start-with starts all nodes, but with "
        "--node-rank this dscrun starts one node only");
  if (options.start_with == "ssh" && !file)
    throw PlanError("--start-with ssh: expected --hostfile too, the file with the names of the hosts");
  if (!options.start_with.empty() && !file && options.nodes == 0)
    throw PlanError("--start-with " + options.start_with + ": expected --hostfile or --nnodes too");
  if (options.keep_going && options.restarts > 0)
    throw PlanError(
        "--restarts: cannot be given together with --keep-going: with --keep-going a failure does not end "
        "the run, so the run never restarts");
}

Way choose_way(const Options& options, const std::vector<Node>& nodes) {
  if (options.start_with == "mpirun") return Way::kMpirun;
  if (options.start_with == "srun") return Way::kSrun;
  if (!options.node_rank.empty()) return nodes.size() > 1 ? Way::kByHand : Way::kHere;
  if (!options.host_file.empty()) {
    const bool all_here = std::all_of(nodes.begin(), nodes.end(), [](const Node& n) { return n.is_here; });
    return nodes.size() == 1 && all_here ? Way::kHere : Way::kSsh;
  }
  if (nodes.size() == 1) return Way::kHere;
  throw PlanError("--nnodes " + std::to_string(nodes.size()) + ": expected --node-rank (0 to " +
                  std::to_string(nodes.size() - 1) +
                  ", a different number on each host), or --hostfile, with which one dscrun starts the ranks "
                  "of all hosts");
}

int parse_node_rank(const std::string& text, const std::string& source, size_t nodes) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && *end == '\0' && value >= 0 && static_cast<size_t>(value) < nodes) return value;
  throw PlanError(source + ": expected 0 to " + std::to_string(nodes - 1) + ", because there are " +
                  std::to_string(nodes) + " nodes, got '" + text + "'");
}

// Slurm numbers the hosts of a step in its own order, so the host's name is used if all names are known.
int find_node_rank(const Options& options, size_t nodes) {
  if (options.node_rank != "auto") return parse_node_rank(options.node_rank, "--node-rank", nodes);
  if (const std::string name = variable("SLURMD_NODENAME"); !name.empty() && !options.node_list.empty()) {
    const std::string list = "," + options.node_list + ",";
    const size_t found = list.find("," + name + ",");
    if (found == std::string::npos)
      throw PlanError("--node-rank auto: SLURMD_NODENAME is '" + name +
                      "', expected one of the names in --node-list: " + options.node_list);
    return static_cast<int>(std::count(list.begin(), list.begin() + static_cast<ptrdiff_t>(found), ','));
  }
  for (const char* source : {"SLURM_NODEID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"})
    if (const std::string text = variable(source); !text.empty()) return parse_node_rank(text, source, nodes);
  throw PlanError(
      "--node-rank auto: expected SLURM_NODEID, OMPI_COMM_WORLD_RANK or PMI_RANK in the environment; srun "
      "and mpirun set one of them");
}

std::string choose_address(const Options& options, const Plan& plan) {
  if (!options.master_addr.empty()) return options.master_addr;
  const std::string& first = plan.nodes.front().host;
  const auto here = [](const Node& node) { return node.is_here; };
  if (std::all_of(plan.nodes.begin(), plan.nodes.end(), here)) return "127.0.0.1";
  if (first.empty())
    throw PlanError("--nnodes " + std::to_string(plan.nodes.size()) +
                    ": expected --master-addr too, a name or address of node 0 that all hosts can reach");
  if (is_loopback(first))
    throw PlanError(
        "--hostfile: the first host is '" + first +
        "', which means a different machine on every host; expected a name or address that all hosts can "
        "reach, or --master-addr");
  return first.substr(first.find('@') + 1);  // without the user in user@host
}

// If the nodes are started by hand, all must choose the same id without communication. They use the address
// and the port, which two jobs cannot share anyway.
std::string choose_job_id(const Options& options, const Plan& plan) {
  if (!options.job_id.empty()) return options.job_id;
  if (plan.way == Way::kByHand) return plan.master_addr + ":" + std::to_string(plan.port);
  return random_hex(16);
}

void check_plan(const Options& options, const Plan& plan) {
  if (options.allowed_failures >= plan.world_size)
    throw PlanError("--allow-failures: expected fewer than the " + std::to_string(plan.world_size) +
                    " ranks, got '" + std::to_string(options.allowed_failures) + "'");
  if (plan.way == Way::kByHand && options.restarts > 0)
    throw PlanError(
        "--restarts: cannot be given together with --node-rank, because this dscrun cannot restart the other "
        "nodes. Use --hostfile, with which one dscrun starts and restarts all hosts, or restart every node "
        "yourself with a new --job-id");
  const bool delegated = plan.way == Way::kMpirun || plan.way == Way::kSrun;
  const bool blind = delegated || plan.way == Way::kByHand;
  if (blind && options.allowed_failures > 0)
    throw PlanError(
        "--allow-failures: expected --hostfile, with which one dscrun sees the ranks of all hosts");
  if (delegated && options.keep_going)
    throw PlanError("--keep-going: cannot be given together with --start-with " + options.start_with +
                    ", which ends the ranks of all hosts when one host fails");
  for (const Node& node : plan.nodes)
    if (delegated && !node.devices.empty())
      throw PlanError(
          "--start-with " + options.start_with +
          ": cannot select single slots of a host; expected --include or --exclude with whole hosts only");
}

}  // namespace

bool Plan::equal_nodes() const {
  return std::all_of(nodes.begin(), nodes.end(),
                     [&](const Node& node) { return node.ranks == nodes.front().ranks; });
}

Plan make_plan(const Options& options) {
  check_combination(options);
  Plan plan;
  plan.nodes = !options.host_file.empty() ? nodes_of_file(options)
               : options.nodes > 0        ? nodes_by_number(options)
                                          : one_node(options);
  plan.world_size = 0;
  for (Node& node : plan.nodes) {
    node.first_rank = plan.world_size;
    plan.world_size += node.ranks;
  }
  plan.way = choose_way(options, plan.nodes);
  if (!options.node_rank.empty()) plan.own_node = find_node_rank(options, plan.nodes.size());
  if (plan.way == Way::kHere) plan.nodes.front().is_here = true;
  plan.master_addr = choose_address(options, plan);
  plan.port = options.port;
  plan.job_id = choose_job_id(options, plan);
  check_plan(options, plan);
  return plan;
}

}  // namespace dscrun
