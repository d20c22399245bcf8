#include "dscctl/plan/network.hpp"

#include <algorithm>
#include <stdexcept>
#include <thread>

#include "common/units.hpp"
#include "dscctl/bench/network.hpp"

namespace dscctl::plan {
namespace {

constexpr double kUsPerSecond = 1e6;
constexpr const char* kMeasure = "measure";
constexpr const char* kFree = "free";

// Measures with two ranks, and with as many ranks as there are devices, but at most as many as CPUs. The
// number is a power of two.
NetworkFile measured_here(int devices) {
  constexpr int kBudgetMs = 50, kMostRanks = 64;
  constexpr const char* kSizes = "4,4KiB,64KiB,1MiB,16MiB";
  const int cpus = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  int most = 2;
  while (2 * most <= std::min({devices, cpus, kMostRanks})) most *= 2;
  const std::vector<int> ranks = most > 2 ? std::vector<int>{2, most} : std::vector<int>{2};
  return bench::measure_network(ranks, bench::network_sizes(kSizes), kBudgetMs);
}

// Returns text such as "10 us + bytes / 25 GB/s", with the given factor before each number, or "no time".
std::string link_words(const Link& link, const std::string& latency_factor, const std::string& byte_factor) {
  if (!link.takes_time()) return "no time";
  const std::string latency = (link.latency_us > 0 ? latency_factor : "") + tools::time_text(link.latency_us);
  if (link.bytes_per_us <= 0) return latency;
  return latency + " + " + byte_factor + "bytes / " + tools::bytes_text(link.bytes_per_us * kUsPerSecond) +
         "/s";
}

std::string given_names(const std::vector<std::pair<const char*, const std::string*>>& options) {
  std::string names;
  for (const auto& [name, text] : options)
    if (!text->empty()) names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

// If all options are given, no other source is mentioned.
std::string source_of(const std::string& other, const std::string& given, bool is_all) {
  if (is_all || other.empty()) return given;
  return other + (given.empty() ? "" : "; ") + given;
}

}  // namespace

bool Network::knows_reductions() const {
  const Reductions& it = reductions;
  return it.bytes_per_us || !it.measured.empty() || it.are_rings || it.are_free;
}

// A ring of r ranks takes 2 (r - 1) rounds. In each round, every rank sends 1 / r of the bytes.
Link Network::reduction(int replicas) const {
  Link link;
  if (!reductions.measured.empty()) {
    const NetworkLine& line = nearest(reductions.measured, replicas);
    link = {line.latency_us, line.bytes_per_us};
  } else if (reductions.are_rings && replicas > 1) {
    const double rounds = 2.0 * (replicas - 1);
    link = {rounds * message().latency_us, message().bytes_per_us * replicas / rounds};
  }
  return {reductions.latency_us.value_or(link.latency_us),
          reductions.bytes_per_us.value_or(link.bytes_per_us)};
}

std::string Network::message_words() const {
  return "a message between stages takes " + link_words(message(), "", "") + " (" + messages_source + ")";
}

std::string Network::reduction_words() const {
  const Reductions& it = reductions;
  const std::string start = "an all-reduce over replicas takes ", end = " (" + it.source + ")";
  if (it.are_rings) {
    const Link link{it.latency_us.value_or(message().latency_us),
                    it.bytes_per_us.value_or(message().bytes_per_us)};
    return start +
           link_words(link, it.latency_us ? "" : "2 (r - 1) x ", it.bytes_per_us ? "" : "2 (r - 1) / r x ") +
           (it.latency_us && it.bytes_per_us ? "" : " with r replicas") + end;
  }
  if (it.measured.empty() || (it.latency_us && it.bytes_per_us))
    return start + link_words(reduction(2), "", "") + end;
  std::string text;
  for (const NetworkLine& line : it.measured)
    text += (text.empty() ? "" : ", ") + link_words(reduction(line.ranks), "", "") + " with " +
            std::to_string(line.ranks);
  return start + text + end;
}

void NetworkOptions::add_to(CLI::App& app) {
  app.add_option(
         "--network", network_,
         "Latencies and bandwidths: a file of `dscctl bench --network`; 'measure' measures processes "
         "on this host now, which takes seconds; 'free' assumes that messages and all-reduces take no "
         "time. Other options take precedence")
      ->type_name("FILE|measure|free");
  app.add_option("--latency-us", latency_, "Latency of a message between stages (default: 0)")
      ->type_name("US");
  app.add_option(
         "--bandwidth", bandwidth_,
         "Bandwidth of a link between two devices, in each direction, such as 25GB/s or 100Gb/s; 0B/s is "
         "unlimited. All-reduces are then assumed to be rings of such links")
      ->type_name("RATE");
  app.add_option("--reduce-latency-us", reduce_latency_,
                 "Latency of an all-reduce (default: as in a ring, 2 (replicas - 1) times --latency-us)")
      ->type_name("US");
  app.add_option("--reduce-bandwidth", reduce_bandwidth_,
                 "Bytes of gradients per second in an all-reduce; 0B/s is unlimited (default: as in a ring)")
      ->type_name("RATE");
}

void NetworkOptions::apply_file(Network& network, const NetworkFile& file, const std::string& source,
                                int devices) const {
  const NetworkLine& message = nearest(file.messages, devices);
  network.messages = Link{message.latency_us, message.bytes_per_us};
  network.measured_messages = message;
  network.messages_source = source + " with " + std::to_string(message.ranks) + " ranks";
  network.reductions.measured = file.all_reduces;
  network.reductions.source = source;
}

void NetworkOptions::apply_options(Network& network) const {
  Network::Reductions& reductions = network.reductions;
  const bool is_known = network.messages.has_value();
  Link link = network.message();
  if (!latency_.empty()) link.latency_us = tools::number_of("--latency-us", latency_);
  if (!bandwidth_.empty()) link.bytes_per_us = tools::rate_of("--bandwidth", bandwidth_) / kUsPerSecond;
  if (is_known || !bandwidth_.empty()) network.messages = link;
  if (!reduce_latency_.empty())
    reductions.latency_us = tools::number_of("--reduce-latency-us", reduce_latency_);
  if (!reduce_bandwidth_.empty())
    reductions.bytes_per_us = tools::rate_of("--reduce-bandwidth", reduce_bandwidth_) / kUsPerSecond;
  const bool gives_rate = reductions.bytes_per_us.has_value(),
             gives_all = gives_rate && reductions.latency_us;
  reductions.are_rings =
      network_.empty() && !bandwidth_.empty() && !gives_all && !(gives_rate && link.latency_us <= 0);
  const std::string own = given_names({{"--latency-us", &latency_}, {"--bandwidth", &bandwidth_}});
  const std::string reduce =
      given_names({{"--reduce-latency-us", &reduce_latency_}, {"--reduce-bandwidth", &reduce_bandwidth_}});
  network.messages_source = source_of(network.messages_source, own, !latency_.empty() && !bandwidth_.empty());
  if (reductions.are_rings) reductions.source = "a ring of such messages";
  reductions.source = source_of(reductions.source, reduce, gives_all);
}

Network NetworkOptions::network(int devices) const {
  Network network;
  if (network_ == kFree) {
    network.messages = Link{};
    network.reductions.are_free = true;
    network.messages_source = network.reductions.source = "--network free";
  } else if (network_ == kMeasure) {
    apply_file(network, measured_here(devices), "measured now between processes on this host", devices);
  } else if (!network_.empty()) {
    apply_file(network, read_network(network_), network_ + ", measured", devices);
  }
  apply_options(network);
  return network;
}

void expect_known(const Network& network, bool uses_messages, bool uses_reductions) {
  std::string unknown;
  if (uses_messages && !network.messages) unknown = "messages between stages";
  if (uses_reductions && !network.knows_reductions())
    unknown += (unknown.empty() ? "" : " and ") + std::string("all-reduces of gradients over replicas");
  if (unknown.empty()) return;
  throw std::invalid_argument(
      "how long " + unknown +
      " take is not known, and a plan depends on it. Expected one of\n  --bandwidth 25GB/s "
      "--latency-us 10   for a link between two devices; all-reduces are then rings of such links\n  "
      "--reduce-bandwidth 10GB/s            for an all-reduce of gradients, in addition or instead\n  "
      "--network FILE                       a file of `dscctl bench --network FILE` from the hosts that "
      "train\n  --network measure                    measures processes on this host now (not GPUs, "
      "not other hosts)\n  --network free                       assumes that both take no time, which favors "
      "replicas");
}

}  // namespace dscctl::plan
