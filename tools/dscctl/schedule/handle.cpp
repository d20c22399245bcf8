#include "dscctl/schedule/handle.hpp"

#include <algorithm>
#include <utility>

namespace dscctl::schedule {

dsc_pipe_costs_t Costs::as_c() {
  const std::initializer_list<std::vector<double>*> lists{&forward,       &backward_input,   &backward_weight,
                                                          &message_bytes, &activation_bytes, &static_bytes,
                                                          &gradient_bytes};
  dsc_pipe_costs_t costs;
  expect_ok(dsc_pipe_costs_init(&costs, sizeof costs));
  for (const auto* list : lists) costs.n = std::max(costs.n, list->size());
  for (auto* list : lists) {
    if (list->size() != 1 && list->size() != costs.n)
      throw std::runtime_error("one list of costs has " + std::to_string(list->size()) +
                               " values and another has " + std::to_string(costs.n) + ", expected 1 or " +
                               std::to_string(costs.n) + " in every list");
    list->resize(costs.n, list->front());
  }
  costs.forward = forward.data();
  costs.backward_input = backward_input.data();
  costs.backward_weight = backward_weight.data();
  costs.message_bytes = message_bytes.data();
  costs.activation_bytes = activation_bytes.data();
  costs.static_bytes = static_bytes.data();
  costs.gradient_bytes = gradient_bytes.data();
  costs.overlap = overlap;
  costs.latency = latency;
  costs.bytes_per_time = bytes_per_time;
  costs.bucket_bytes = bucket_bytes;
  costs.reduce_latency = reduce_latency;
  costs.reduce_bytes_per_time = reduce_bytes_per_time;
  return costs;
}

Costs Costs::of_parts(const dsc_pipe_schedule_info_t& schedule) const {
  const int32_t parts = schedule.stages * schedule.chunks;
  Costs own = *this;
  const auto spread = [&](std::vector<double>& list, int32_t sharing) {
    if (schedule.chunks == 1 || list.size() == static_cast<size_t>(parts)) return;
    const std::vector<double> given = std::exchange(list, {});
    for (int32_t part = 0; part < parts; ++part)
      list.push_back(given[given.size() == 1 ? 0 : static_cast<size_t>(stage_of(schedule, part))] / sharing);
  };
  for (auto* list : {&own.forward, &own.backward_input, &own.backward_weight, &own.activation_bytes,
                     &own.static_bytes, &own.gradient_bytes})
    spread(*list, schedule.chunks);
  spread(own.message_bytes, 1);
  return own;
}

int32_t stage_of(const dsc_pipe_schedule_info_t& schedule, int32_t part) {
  const int32_t turn = part / schedule.stages, index = part % schedule.stages;
  const bool turns_back = schedule.placement == DSC_PIPE_PLACEMENT_ZIGZAG && turn % 2 == 1;
  return turns_back ? schedule.stages - 1 - index : index;
}

bool differ_in_chunks(const std::vector<Handle>& schedules) {
  return std::any_of(schedules.begin(), schedules.end(), [&](const Handle& one) {
    return describe(one).chunks != describe(schedules.front()).chunks;
  });
}

double idle_part(const Priced& priced) {
  double busy = 0;
  for (const auto& stage : priced.stages) busy += stage.busy;
  const double all = priced.makespan * static_cast<double>(priced.stages.size());
  return all > 0 ? 1 - busy / all : 0;
}

int64_t peak_activations(const Priced& priced) {
  int64_t peak = 0;
  for (const auto& stage : priced.stages) peak = std::max(peak, stage.peak_activations);
  return peak;
}

size_t fullest_stage(const Priced& priced) {
  const auto found =
      std::max_element(priced.stages.begin(), priced.stages.end(),
                       [](const auto& a, const auto& b) { return a.peak_bytes < b.peak_bytes; });
  return static_cast<size_t>(found - priced.stages.begin());
}

dsc_pipe_schedule_info_t describe(const Handle& schedule) {
  dsc_pipe_schedule_info_t info{};
  info.struct_size = sizeof info;
  expect_ok(dsc_pipe_schedule_info(schedule.get(), &info));
  return info;
}

std::string name_of(const Handle& schedule) {
  size_t bytes = 0;
  expect_ok(dsc_pipe_schedule_name(schedule.get(), nullptr, 0, &bytes));
  std::string name(bytes, ' ');
  expect_ok(dsc_pipe_schedule_name(schedule.get(), name.data(), bytes, &bytes));
  name.pop_back();
  return name;
}

Report report_of(const Handle& schedule, const dsc_pipe_costs_t& costs) {
  dsc_pipe_report_t* report = nullptr;
  expect_ok(dsc_pipe_simulate(schedule.get(), &costs, &report));
  return Report(report);
}

Priced simulate(const Handle& schedule, const dsc_pipe_costs_t& costs) {
  const Report report = report_of(schedule, costs);
  Priced priced;
  expect_ok(dsc_pipe_report_makespan(report.get(), &priced.makespan));
  size_t stages = static_cast<size_t>(describe(schedule).stages);
  priced.stages.resize(stages);
  priced.stages.front().struct_size = sizeof(dsc_pipe_stage_stats_t);
  expect_ok(dsc_pipe_report_stages(report.get(), priced.stages.data(), stages, &stages));
  return priced;
}

dsc_pipe_schedule_options_t whole_pipeline() {
  dsc_pipe_schedule_options_t options;
  expect_ok(dsc_pipe_schedule_options_init(&options, sizeof options));
  options.stage = -1;
  return options;
}

Handle make(const dsc_pipe_schedule_options_t& options) {
  dsc_pipe_schedule_t* made = nullptr;
  expect_ok(dsc_pipe_schedule_create(&options, &made));
  return Handle(made);
}

dsc_pipe_search_options_t no_limits() {
  dsc_pipe_search_options_t limits;
  expect_ok(dsc_pipe_search_options_init(&limits, sizeof limits));
  return limits;
}

Found find(const dsc_pipe_schedule_options_t& options, const dsc_pipe_costs_t& costs,
           const dsc_pipe_search_options_t& limits) {
  Found found{};
  found.result.struct_size = sizeof found.result;
  dsc_pipe_schedule_t* made = nullptr;
  expect_ok(dsc_pipe_search(&options, &costs, &limits, &found.result, &made));
  found.schedule.reset(made);
  return found;
}

Handle read(const std::string& text, int32_t format, const dsc_pipe_schedule_options_t& options) {
  dsc_pipe_schedule_t* made = nullptr;
  expect_ok(dsc_pipe_schedule_import(text.data(), text.size(), format, &options, &made));
  return Handle(made);
}

std::string write(const Handle& schedule, int32_t format) {
  std::string text;
  size_t bytes = 0;
  expect_ok(dsc_pipe_schedule_export(schedule.get(), format, nullptr, 0, &bytes));
  text.resize(bytes);
  expect_ok(dsc_pipe_schedule_export(schedule.get(), format, text.data(), text.size(), &bytes));
  text.pop_back();
  return text;
}

std::string draw(const Handle& schedule, const dsc_pipe_costs_t& costs, int32_t picture) {
  std::string text;
  size_t bytes = 0;
  expect_ok(dsc_pipe_draw(schedule.get(), &costs, picture, nullptr, 0, &bytes));
  text.resize(bytes);
  expect_ok(dsc_pipe_draw(schedule.get(), &costs, picture, text.data(), text.size(), &bytes));
  text.pop_back();
  return text;
}

}  // namespace dscctl::schedule
