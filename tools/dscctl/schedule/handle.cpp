#include "dscctl/schedule/handle.hpp"

#include <algorithm>

namespace dscctl::schedule {

dsc_pipe_costs_t Costs::as_c() {
  dsc_pipe_costs_t costs;
  expect_ok(dsc_pipe_costs_init(&costs, sizeof costs));
  for (auto* list : {&forward, &backward_input, &backward_weight, &activation_bytes})
    costs.n = std::max(costs.n, list->size());
  for (auto* list : {&forward, &backward_input, &backward_weight, &activation_bytes}) {
    if (list->size() != 1 && list->size() != costs.n)
      throw std::runtime_error("a list of costs has " + std::to_string(list->size()) +
                               " values, expected 1 or " + std::to_string(costs.n) + ", as another one has");
    list->resize(costs.n, list->front());
  }
  costs.forward = forward.data();
  costs.backward_input = backward_input.data();
  costs.backward_weight = backward_weight.data();
  costs.activation_bytes = activation_bytes.data();
  costs.overlap = overlap;
  costs.latency = latency;
  return costs;
}

Handle make(const dsc_pipe_schedule_options_t& options) {
  dsc_pipe_schedule_t* made = nullptr;
  expect_ok(dsc_pipe_schedule_create(&options, &made));
  return Handle(made);
}

Handle find(const dsc_pipe_schedule_options_t& options, const dsc_pipe_costs_t& costs,
            dsc_pipe_search_t& search) {
  dsc_pipe_schedule_t* made = nullptr;
  expect_ok(dsc_pipe_schedule_find(&options, &costs, &search, &made));
  return Handle(made);
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
