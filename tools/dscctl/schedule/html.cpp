#include "dscctl/schedule/html.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "dscctl/schedule/order_text.hpp"
#include "dscctl/schedule/page.hpp"

namespace dscctl::schedule {
namespace {

using Json = nlohmann::ordered_json;

// Limits for all sizes together, so that the page loads fast.
constexpr size_t kMostText = 3'000'000, kMostMade = 20'000'000;

std::vector<dsc_pipe_compute_t> order_of(const Handle& schedule, int32_t stage) {
  size_t total = 0;
  expect_ok(dsc_pipe_schedule_order(schedule.get(), stage, 0, nullptr, 0, &total));
  std::vector<dsc_pipe_compute_t> order(total);
  expect_ok(dsc_pipe_schedule_order(schedule.get(), stage, 0, order.data(), order.size(), &total));
  return order;
}

size_t operations_of(const Handle& schedule) {
  size_t sum = 0;
  for (int32_t stage = 0; stage < describe(schedule).stages; ++stage) {
    size_t total = 0;
    expect_ok(dsc_pipe_schedule_order(schedule.get(), stage, 0, nullptr, 0, &total));
    sum += total;
  }
  return sum;
}

Json orders_json(const Handle& schedule) {
  const auto info = describe(schedule);
  Json orders = Json::array();
  for (int32_t stage = 0; stage < info.stages; ++stage) {
    const auto order = order_of(schedule, stage);
    if (const auto text = order_text(order, info.micro_batches)) {
      orders.push_back(*text);
      continue;
    }
    Json list = Json::array();
    for (const auto& it : order) list.push_back({it.op, it.chunk, it.micro_batch, it.overlaps});
    orders.push_back(std::move(list));
  }
  return orders;
}

void expect_few(const Handle& schedule, size_t& left) {
  const size_t operations = operations_of(schedule);
  if (operations > left)
    throw std::runtime_error(
        "a page can show at most " + std::to_string(kMostShown) +
        " operations, and the given schedules have more; expected fewer micro-batches or schedules");
  left -= operations;
}

Json schedule_json(const Handle& schedule) {
  static constexpr const char* kPlacements[] = {"loop", "zigzag", "apart"};
  const auto info = describe(schedule);
  return {{"name", name_of(schedule)},
          {"chunks", info.chunks},
          {"stages", info.stages},
          {"microBatches", info.micro_batches},
          {"placement", kPlacements[info.placement]},
          {"forwardOnly", info.forward_only == 1},
          {"sizes", Json::object()}};
}

std::string size_key(int32_t stages, int32_t micro_batches) {
  return std::to_string(stages) + "x" + std::to_string(micro_batches);
}

void add_own_size(Json& json, const Handle& schedule) {
  const auto info = describe(schedule);
  json["sizes"][size_key(info.stages, info.micro_batches)] = orders_json(schedule);
}

// The positions of the sliders: all small sizes, some large sizes, and the sizes of the given schedules.
struct Sizes {
  std::vector<int32_t> stages, micro_batches;
};

void add_sorted(std::vector<int32_t>& list, int32_t value) {
  if (std::find(list.begin(), list.end(), value) == list.end())
    list.insert(std::upper_bound(list.begin(), list.end(), value), value);
}

// If there are costs for each part, the number of stages cannot change.
Sizes sizes_of(const std::vector<Family>& families, bool has_parts) {
  Sizes sizes;
  const bool can_change =
      std::any_of(families.begin(), families.end(), [](const Family& it) { return it.make != nullptr; });
  if (can_change && !has_parts) sizes.stages = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32};
  if (can_change)
    sizes.micro_batches = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14,
                           15, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 128};
  for (const Family& it : families) {
    add_sorted(sizes.stages, describe(it.schedule).stages);
    add_sorted(sizes.micro_batches, describe(it.schedule).micro_batches);
  }
  return sizes;
}

struct Left {
  size_t text = kMostText, operations = kMostMade;
};

// Returns the orders, or the reason why they do not exist. Returns null once the page is full.
Json orders_or_reason(const Family& family, int32_t chunks, int32_t stages, int32_t micro_batches,
                      Left& left) {
  const size_t operations = size_t{3} * static_cast<size_t>(chunks) * static_cast<size_t>(stages) *
                            static_cast<size_t>(micro_batches);
  if (operations > std::min(kMostShown, left.operations)) return {};
  left.operations -= operations;
  Json json;
  try {
    const Handle made = family.make(stages, micro_batches);
    if (describe(made).chunks != chunks) return {};
    json = orders_json(made);
  } catch (const std::runtime_error& error) {
    json = error.what();
  }
  const size_t length = json.dump().size();
  if (length > left.text) return {};
  left.text -= length;
  return json;
}

void add_other_sizes(Json& json, const Family& family, const Sizes& sizes, Left left) {
  const int32_t chunks = describe(family.schedule).chunks;
  Json& known = json["sizes"];
  for (const int32_t micro_batches : sizes.micro_batches)
    for (const int32_t stages : sizes.stages) {
      const std::string key = size_key(stages, micro_batches);
      if (known.contains(key)) continue;
      if (Json orders = orders_or_reason(family, chunks, stages, micro_batches, left); !orders.is_null())
        known[key] = std::move(orders);
    }
}

size_t values_of(const Costs& costs) {
  return std::max({costs.forward.size(), costs.backward_input.size(), costs.backward_weight.size(),
                   costs.message_bytes.size(), costs.gradient_bytes.size(), costs.activation_bytes.size(),
                   costs.static_bytes.size()});
}

Json costs_json(const Costs& costs) {
  std::vector<double> moving = costs.message_bytes;  // below, bytes become times on a link
  for (double& one : moving) one = costs.bytes_per_time > 0 ? one / costs.bytes_per_time : 0;
  return {{"forward", costs.forward},
          {"backwardInput", costs.backward_input},
          {"backwardWeight", costs.backward_weight},
          {"comm", costs.latency},
          {"moving", moving},
          {"activation", costs.activation_bytes},
          {"fixed", costs.static_bytes},
          {"reduce",
           {{"bytes", costs.gradient_bytes},
            {"bucket", costs.bucket_bytes},
            {"latency", costs.reduce_latency},
            {"rate", costs.reduce_bytes_per_time}}},
          {"overlap", costs.overlap},
          {"after", costs.after}};
}

bool has_bytes(const Costs& costs) {
  const auto is_positive = [](double bytes) { return bytes > 0; };
  return std::any_of(costs.activation_bytes.begin(), costs.activation_bytes.end(), is_positive) ||
         std::any_of(costs.static_bytes.begin(), costs.static_bytes.end(), is_positive);
}

// Escapes text inside a script element, so that it cannot close the element.
std::string within_script(std::string text) {
  for (size_t at = 0; (at = text.find("</", at)) != std::string::npos; at += 3) text.replace(at, 2, "<\\/");
  return text;
}

std::string page_of(const Json& data) {
  return kPageHead + within_script(data.dump(-1, ' ', true, Json::error_handler_t::replace)) + kPageTail;
}

Json page_json(const Costs& costs, const PageFacts& facts, bool own, const Sizes& sizes, Json schedules) {
  return {{"costs", costs_json(costs)},
          {"own", own},
          {"note", facts.note},
          {"unit", facts.are_us ? "us" : ""},
          {"memory", facts.memory_bytes},
          {"stages", sizes.stages},
          {"microBatches", sizes.micro_batches},
          {"schedules", std::move(schedules)}};
}

}  // namespace

std::string html_of(const std::vector<Family>& families, const Costs& costs, const PageFacts& facts) {
  const Sizes sizes = sizes_of(families, values_of(costs) > 1);
  const Left each{kMostText / families.size(), kMostMade / families.size()};
  size_t left = kMostShown;
  Json all = Json::array();
  for (const Family& it : families) {
    expect_few(it.schedule, left);
    all.push_back(schedule_json(it.schedule));
    add_own_size(all.back(), it.schedule);
    if (values_of(costs) > 1) all.back()["costs"] = costs_json(costs.of_parts(describe(it.schedule)));
    if (it.make) add_other_sizes(all.back(), it, sizes, each);
  }
  Json page = page_json(costs, facts, false, sizes, std::move(all));
  page["hasBytes"] = has_bytes(costs);
  return page_of(page);
}

std::string html_of(const std::vector<Shown>& plans, const PageFacts& facts) {
  size_t left = kMostShown;
  Json all = Json::array();
  bool any_bytes = false;
  for (const Shown& one : plans) {
    expect_few(one.schedule, left);
    all.push_back(schedule_json(one.schedule));
    add_own_size(all.back(), one.schedule);
    all.back()["title"] = one.title;
    all.back()["costs"] = costs_json(one.costs);
    any_bytes = any_bytes || has_bytes(one.costs);
  }
  all.front()["recommended"] = true;
  Json page = page_json(plans.front().costs, facts, true, {}, std::move(all));
  page["hasBytes"] = any_bytes;
  return page_of(page);
}

}  // namespace dscctl::schedule
