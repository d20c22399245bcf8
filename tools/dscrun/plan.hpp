// Which rank runs on which host, and how the hosts are reached.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "dscrun/options.hpp"

namespace dscrun {

struct Node {
  std::string host;  // empty: not known, and not needed
  int first_rank = 0;
  int ranks = 1;
  std::string devices;   // "1,3" if the slots were named one by one
  bool is_here = false;  // this machine
};

enum class Way {
  kHere,    // one host, this one
  kByHand,  // somebody starts one dscrun on every host
  kSsh,     // this one starts the others
  kMpirun,  // mpirun or srun starts one dscrun on every host
  kSrun
};

struct Plan {
  Way way = Way::kHere;
  std::vector<Node> nodes;
  int own_node = 0;  // among them; by hand
  int world_size = 1;
  std::string master_addr;
  int port = 0;
  std::string job_id;

  bool several_hosts() const { return nodes.size() > 1; }
  bool equal_nodes() const;  // the same number of ranks on each
};

// Options that do not fit together, or the host file; what() is one line.
struct PlanError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

Plan make_plan(const Options& options);  // throws PlanError

}  // namespace dscrun
