// What messages and all-reduces take in a plan, and where these numbers come from. Nothing is free unless
// asked for.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "dscctl/network.hpp"

namespace dscctl::plan {

// latency_us + bytes / bytes_per_us; 0 bytes per microsecond: unlimited.
struct Link {
  double latency_us = 0;
  double bytes_per_us = 0;

  bool takes_time() const { return latency_us > 0 || bytes_per_us > 0; }
};

struct Network {
  // What an all-reduce takes is, first of all, what is given. The rest is what was measured; then what a ring
  // of messages takes; and 0 if it is free.
  struct Reductions {
    std::optional<double> latency_us, bytes_per_us;
    std::vector<NetworkLine> measured;
    bool are_rings = false;
    bool are_free = false;
    std::string source;  // for people
  };
  std::optional<Link> messages;  // nothing: not known
  std::optional<NetworkLine> measured_messages;
  std::string messages_source;
  Reductions reductions;

  Link message() const { return messages.value_or(Link{}); }
  bool knows_reductions() const;
  Link reduction(int replicas) const;

  std::string message_words() const;
  std::string reduction_words() const;
};

class NetworkOptions {
 public:
  void add_to(CLI::App& app);
  // Measures if that is asked for. Throws std::invalid_argument for wrong options and files.
  Network network(int devices) const;

 private:
  void apply_file(Network& network, const NetworkFile& file, const std::string& source, int devices) const;
  void apply_options(Network& network) const;

  std::string network_, latency_, bandwidth_, reduce_latency_, reduce_bandwidth_;
};

// Throws std::invalid_argument, naming the options that are missing.
void expect_known(const Network& network, bool uses_messages, bool uses_reductions);

}  // namespace dscctl::plan
