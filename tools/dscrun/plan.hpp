// Decides which rank runs on which host, and how the hosts are reached.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "dscrun/options.hpp"

namespace dscrun {

struct Node {
  std::string host;  // empty: not known and not needed
  int first_rank = 0;
  int ranks = 1;
  std::string devices;   // such as "1,3", if the slots were named individually
  bool is_here = false;  // this machine
};

enum class Way {
  kHere,    // only this host
  kByHand,  // the user starts one dscrun on every host
  kSsh,     // this dscrun starts the others by ssh
  kMpirun,  // mpirun starts one dscrun on every host
  kSrun     // srun starts one dscrun on every host
};

struct Plan {
  Way way = Way::kHere;
  std::vector<Node> nodes;
  int own_node = 0;  // index of this host, if started by hand
  int world_size = 1;
  std::string master_addr;
  int port = 0;
  std::string job_id;

  bool several_hosts() const { return nodes.size() > 1; }
  bool equal_nodes() const;  // true if each node has the same number of ranks
};

// Options, or a host file, that do not fit together. what() is one line.
struct PlanError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

Plan make_plan(const Options& options);  // throws PlanError

}  // namespace dscrun
