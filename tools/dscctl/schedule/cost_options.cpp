#include "dscctl/schedule/cost_options.hpp"

#include <algorithm>
#include <stdexcept>

#include "common/units.hpp"
#include "dscctl/network.hpp"

namespace dscctl::schedule {
namespace {

constexpr size_t kMostRepeated = 1 << 18;
constexpr double kUsPerSecond = 1e6;

// Returns a rate per unit of time. A rate that was given with a unit becomes a rate per microsecond.
double rate_per_time(const std::string& option, const std::string& text) {
  if (const auto plain = tools::parse_number(text)) return *plain;
  if (const auto rate = tools::parse_rate(text)) return *rate / kUsPerSecond;
  throw std::invalid_argument(option +
                              ": expected bytes per unit of time such as 25000, or 25GB/s or 100Gb/s if "
                              "times are microseconds, got '" +
                              text + "'");
}

std::vector<double> read_list(const std::string& option, const std::string& text, bool are_bytes) {
  std::vector<double> values;
  for (const std::string& item : tools::split(text, ',')) {
    const size_t times = item.find('x');
    const std::string one = times == std::string::npos ? item : item.substr(times + 1);
    const int count = times == std::string::npos ? 1 : tools::whole_of(option, item.substr(0, times), 1);
    const double value = are_bytes ? tools::bytes_of(option, one) : tools::number_of(option, one);
    if (values.size() + static_cast<size_t>(count) > kMostRepeated)
      throw std::invalid_argument(option + ": expected at most " + std::to_string(kMostRepeated) + " values");
    values.insert(values.end(), static_cast<size_t>(count), value);
  }
  return values;
}

}  // namespace

std::array<CostOptions::List, 7> CostOptions::make_lists() {
  return {List{"--forward", "Time of a forward pass (default: 1)", &Costs::forward, false},
          List{"--backward-input",
               "Time of the half of a backward pass for the gradients of the inputs (default: 1)",
               &Costs::backward_input, false},
          List{"--backward-weight",
               "Time of the half of a backward pass for the gradients of the weights (default: 1)",
               &Costs::backward_weight, false},
          List{"--message-bytes", "Bytes that a part sends to the next part (default: 0)",
               &Costs::message_bytes, true},
          List{"--activation-bytes", "Bytes held for a micro-batch until its backward pass ends (default: 0)",
               &Costs::activation_bytes, true},
          List{"--static-bytes", "Bytes of weights, gradients and optimizer state (default: 0)",
               &Costs::static_bytes, true},
          List{"--gradient-bytes",
               "Bytes of gradients that are all-reduced over replicas at the end (default: 0)",
               &Costs::gradient_bytes, true}};
}

std::array<CostOptions::Value, 6> CostOptions::make_values() {
  return {
      Value{"--comm,--latency", "Time of a message between stages (default: 0)", &Costs::latency,
            tools::number_of, "TIME"},
      Value{"--bandwidth",
            "Bandwidth of a link between two stages, in each direction: bytes per unit of time, or 25GB/s or "
            "100Gb/s if times are microseconds (default: unlimited)",
            &Costs::bytes_per_time, rate_per_time, "RATE"},
      Value{"--bucket", "Bytes of gradients in one all-reduce (default: all gradients of a part)",
            &Costs::bucket_bytes, tools::bytes_of, "BYTES"},
      Value{"--reduce-latency", "Time of an all-reduce (default: 0)", &Costs::reduce_latency,
            tools::number_of, "TIME"},
      Value{"--reduce-bandwidth",
            "Bandwidth of an all-reduce: bytes of gradients per unit of time, or 25GB/s or 100Gb/s if times "
            "are microseconds (default: unlimited)",
            &Costs::reduce_bytes_per_time, rate_per_time, "RATE"},
      Value{"--overlap",
            "Time of two overlapped passes divided by the sum of their separate times (default: 1, no gain)",
            &Costs::overlap, tools::part_of, "PART"}};
}

void CostOptions::add_to(CLI::App& app) {
  app.add_option(
         "--network", network_,
         "File of `dscctl bench --network`: uses the latencies and bandwidths that were measured with the "
         "largest number of ranks. Times are then microseconds. Other options take precedence")
      ->type_name("FILE");
  for (List& list : lists_)
    app.add_option(list.option, list.text, list.help)
        ->type_name(list.are_bytes ? "BYTES[,BYTES...]" : "TIME[,TIME...]");
  for (Value& value : values_) app.add_option(value.option, value.text, value.help)->type_name(value.type);
}

Costs CostOptions::costs() const {
  Costs costs;
  if (!network_.empty()) {
    const NetworkFile network = read_network(network_);
    const NetworkLine &message = nearest(network.messages, INT32_MAX),
                      &reduce = nearest(network.all_reduces, INT32_MAX);
    costs.latency = message.latency_us;
    costs.bytes_per_time = message.bytes_per_us;
    costs.reduce_latency = reduce.latency_us;
    costs.reduce_bytes_per_time = reduce.bytes_per_us;
  }
  for (const List& list : lists_)
    if (!list.text.empty()) costs.*list.values = read_list(list.option, list.text, list.are_bytes);
  for (const Value& value : values_)
    if (!value.text.empty()) costs.*value.value = value.read(tools::split(value.option, ',')[0], value.text);
  return costs;
}

void CostOptions::expect_parts(const Costs& costs, int32_t stages, int32_t chunks) const {
  const auto parts = static_cast<size_t>(stages) * static_cast<size_t>(chunks);
  std::string expected = "1";
  if (stages > 1 && chunks > 1) expected += ", " + std::to_string(stages) + " (one for each stage)";
  if (parts > 1) expected += " or " + std::to_string(parts) + ": one for each part of the model";
  for (const List& list : lists_)
    if (const size_t n = (costs.*list.values).size();
        n != 1 && n != static_cast<size_t>(stages) && n != parts)
      throw std::invalid_argument(std::string(list.option) + " has " + std::to_string(n) +
                                  " values, expected " + expected);
}

void CostOptions::expect_no_stages(const Costs& costs, int32_t stages, int32_t chunks) const {
  for (const List& list : lists_)
    if (stages > 1 && chunks > 1 && (costs.*list.values).size() == static_cast<size_t>(stages))
      throw std::invalid_argument(std::string(list.option) + " has a value for each of " +
                                  std::to_string(stages) + " stages, expected 1 value or " +
                                  std::to_string(stages * chunks) +
                                  ", because auto chooses which parts of the model a stage has");
}

std::string list_text(const std::vector<std::string>& values) {
  std::string text;
  for (size_t i = 0; i < values.size();) {
    const auto begin = values.begin() + static_cast<ptrdiff_t>(i);
    const auto end = std::find_if(begin, values.end(), [&](const std::string& one) { return one != *begin; });
    const auto count = static_cast<size_t>(end - begin);
    text += (i == 0 ? "" : ",") + (count > 1 ? std::to_string(count) + "x" : "") + *begin;
    i += count;
  }
  return text;
}

}  // namespace dscctl::schedule
