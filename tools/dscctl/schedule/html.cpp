#include "dscctl/schedule/html.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "dscctl/schedule/page.hpp"

namespace dscctl::schedule {
namespace {

using Json = nlohmann::ordered_json;

Json order_of(const Handle& schedule, int32_t stage, size_t& left) {
  int64_t total = 0;
  expect_ok(dsc_pipe_schedule_order(schedule.get(), stage, 0, nullptr, 0, &total));
  if (static_cast<size_t>(total) > left)
    throw std::runtime_error("more than " + std::to_string(kMostShown) +
                             " operations, expected fewer for a page");
  left -= static_cast<size_t>(total);
  std::vector<dsc_pipe_compute_t> operations(static_cast<size_t>(total));
  expect_ok(dsc_pipe_schedule_order(schedule.get(), stage, 0, operations.data(), operations.size(), &total));
  Json order = Json::array();
  for (const auto& it : operations) order.push_back({it.op, it.chunk, it.micro_batch, it.overlaps});
  return order;
}

std::string title_of_schedule(const Handle& schedule) {
  const auto info = describe(schedule);
  std::string title = name_of(schedule) + ": " + std::to_string(info.stages) + " stages";
  if (info.chunks > 1) title += " x " + std::to_string(info.chunks) + " chunks";
  return title + ", " + std::to_string(info.micro_batches) + " micro-batches";
}

Json schedule_json(const Handle& schedule, const std::string& title, size_t& left) {
  static constexpr const char* kPlacements[] = {"loop", "zigzag", "apart"};
  const auto info = describe(schedule);
  Json orders = Json::array();
  for (int32_t stage = 0; stage < info.stages; ++stage) orders.push_back(order_of(schedule, stage, left));
  return {{"title", title},
          {"stages", info.stages},
          {"chunks", info.chunks},
          {"microBatches", info.micro_batches},
          {"placement", kPlacements[info.placement]},
          {"forwardOnly", info.forward_only == 1},
          {"orders", std::move(orders)}};
}

// One value for each part fits schedules with that many parts alone.
void check_costs(const std::vector<Handle>& schedules, const Costs& costs) {
  const size_t values =
      std::max({costs.forward.size(), costs.backward_input.size(), costs.backward_weight.size(),
                costs.message_bytes.size(), costs.gradient_bytes.size()});
  for (const Handle& schedule : schedules)
    if (const auto info = describe(schedule);
        values > 1 && values != static_cast<size_t>(info.stages) * static_cast<size_t>(info.chunks))
      throw std::runtime_error("costs have " + std::to_string(values) +
                               " values, expected 1 for schedules with different numbers of parts");
}

Json costs_json(const Costs& costs) {
  std::vector<double> moving = costs.message_bytes;  // time on a link
  for (double& one : moving) one = costs.bytes_per_time > 0 ? one / costs.bytes_per_time : 0;
  return {{"forward", costs.forward},
          {"backwardInput", costs.backward_input},
          {"backwardWeight", costs.backward_weight},
          {"comm", costs.latency},
          {"moving", moving},
          {"reduce",
           {{"bytes", costs.gradient_bytes},
            {"bucket", costs.bucket_bytes},
            {"latency", costs.reduce_latency},
            {"rate", costs.reduce_bytes_per_time}}},
          {"overlap", costs.overlap}};
}

// No text of a schedule may end the element that it stands in.
std::string within_script(std::string text) {
  for (size_t at = 0; (at = text.find("</", at)) != std::string::npos; at += 3) text.replace(at, 2, "<\\/");
  return text;
}

std::string page_of(const Json& data) {
  return kPageHead + within_script(data.dump(-1, ' ', true, Json::error_handler_t::replace)) + kPageTail;
}

}  // namespace

std::string html_of(const std::vector<Handle>& schedules, const Costs& costs) {
  check_costs(schedules, costs);
  size_t left = kMostShown;
  Json all = Json::array();
  for (const Handle& schedule : schedules)
    all.push_back(schedule_json(schedule, title_of_schedule(schedule), left));
  return page_of({{"costs", costs_json(costs)}, {"own", false}, {"schedules", std::move(all)}});
}

std::string html_of(const std::vector<Shown>& plans) {
  size_t left = kMostShown;
  Json all = Json::array();
  for (const Shown& one : plans) {
    all.push_back(schedule_json(one.schedule, one.title, left));
    all.back()["costs"] = costs_json(one.costs);
  }
  return page_of({{"costs", costs_json(plans.front().costs)}, {"own", true}, {"schedules", std::move(all)}});
}

}  // namespace dscctl::schedule
