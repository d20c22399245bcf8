// The times of messages and all-reduces in a plan, and the sources of these numbers. No communication counts
// as free unless the user asks for it.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "dscctl/network.hpp"

namespace dscctl::plan {

// time = latency_us + bytes / bytes_per_us. If bytes_per_us is 0, the bandwidth is unlimited.
struct Link {
  double latency_us = 0;
  double bytes_per_us = 0;

  bool takes_time() const { return latency_us > 0 || bytes_per_us > 0; }
};

struct Network {
  // The cost of an all-reduce comes from the first of these sources: values that the user gave, measurements,
  // the cost of a ring of messages. It is 0 if are_free is set.
  struct Reductions {
    std::optional<double> latency_us, bytes_per_us;
    std::vector<NetworkLine> measured;
    bool are_rings = false;
    bool are_free = false;
    std::string source;  // text for the report
  };
  std::optional<Link> messages;  // nullopt: unknown
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
  // Measures the network if that was requested. Throws std::invalid_argument for wrong options and files.
  Network network(int devices) const;

 private:
  void apply_file(Network& network, const NetworkFile& file, const std::string& source, int devices) const;
  void apply_options(Network& network) const;

  std::string network_, latency_, bandwidth_, reduce_latency_, reduce_bandwidth_;
};

// Throws std::invalid_argument with the names of the missing options.
void expect_known(const Network& network, bool uses_messages, bool uses_reductions);

}  // namespace dscctl::plan
