// The data that the ranks of one host need, and how it is sent to the dscrun on that host.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dscrun/options.hpp"
#include "dscrun/plan.hpp"

namespace dscrun {

struct NodeJob {
  int node_rank = 0;
  int node_count = 1;
  int first_rank = 0;
  int ranks = 1;
  int world_size = 1;
  int port = 0;
  int restart_count = 0;
  int grace_ms = 0;
  int lost_after_ms = 0;
  bool foreign = false;  // another launcher started this dscrun, so its variables must not apply to the ranks
  std::string master_addr, job_id, token, directory;
  std::string devices;                   // for CUDA_VISIBLE_DEVICES; empty: unchanged
  std::vector<std::string> environment;  // NAME=VALUE, added to the environment
  std::vector<std::string> command;
};

NodeJob make_job(const Options& options, const Plan& plan, size_t node, int restart_count,
                 const std::string& token);

// Returns variables of this process that other hosts should also have, as NAME=VALUE.
std::vector<std::string> forwarded_environment();

// The first line contains dscrun's version and the number of bytes that follow.
std::string encode_job(const NodeJob& job);

// Reads exactly one job. Throws std::runtime_error.
NodeJob read_job(int fd);

}  // namespace dscrun
