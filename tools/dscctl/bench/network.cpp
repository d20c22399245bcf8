#include "dscctl/bench/network.hpp"

#include <set>
#include <stdexcept>

#include "dscctl/bench/measure.hpp"

namespace dscctl::bench {
namespace {

// Measures an operation with plain buffers, because gradients and activations are usually in plain buffers.
NetworkLine measure_line(const char* name, const std::vector<size_t>& sizes, Job job) {
  const Operation& operation = find_operation(name);
  for (const size_t bytes : sizes) job.cases.push_back({&operation, false, bytes});
  std::vector<Measured> measured;
  measure(job, [&](const Facts&, const Row& row) {
    measured.push_back({static_cast<double>(row.of.bytes), row.median_us});
  });
  return line_of(job.ranks, measured);
}

}  // namespace

std::vector<size_t> network_sizes(const std::string& text) {
  std::vector<size_t> sizes = parse_sizes(text);
  if (std::set<size_t>(sizes.begin(), sizes.end()).size() < 2)
    throw std::invalid_argument("--sizes: expected two or more different sizes for --network, got " + text);
  return sizes;
}

NetworkFile measure_network(const std::vector<int>& ranks, const std::vector<size_t>& sizes, int budget_ms) {
  NetworkFile network;
  for (const int count : ranks) {
    const Job job{count, {}, {}, budget_ms, false};
    network.messages.push_back(measure_line("send_recv", sizes, job));
    network.all_reduces.push_back(measure_line("all_reduce", sizes, job));
  }
  return network;
}

}  // namespace dscctl::bench
