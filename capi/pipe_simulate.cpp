#include "dsc/pipe_simulate.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/guard.hpp"
#include "base/options.hpp"
#include "checks.hpp"
#include "pipe_call.hpp"
#include "pipeline/best_plan.hpp"
#include "pipeline/draw.hpp"
#include "pipeline/simulate.hpp"

namespace {

constexpr size_t kFirstCostsSize = 120;
constexpr size_t kFirstReportSize = 72;
constexpr size_t kFirstSearchSize = 120;
static_assert(sizeof(dsc_pipe_costs_t) == kFirstCostsSize, "no padding, only appended fields");
static_assert(sizeof(dsc_pipe_report_t) == kFirstReportSize, "no padding, only appended fields");
static_assert(sizeof(dsc_pipe_search_t) == kFirstSearchSize, "no padding, only appended fields");
static_assert(sizeof(dsc_pipe_stage_report_t) == 64 && sizeof(dsc_pipe_span_t) == 32,
              "arrays of them may never change");
static_assert(static_cast<int32_t>(dsc::PipePicture::kText) == DSC_PIPE_PICTURE_TEXT &&
                  static_cast<int32_t>(dsc::PipePicture::kColor) == DSC_PIPE_PICTURE_COLOR &&
                  static_cast<int32_t>(dsc::PipePicture::kSvg) == DSC_PIPE_PICTURE_SVG &&
                  static_cast<int32_t>(dsc::PipePicture::kPerfetto) == DSC_PIPE_PICTURE_PERFETTO,
              "one set of numbers");

dsc_pipe_costs_t default_costs() {
  dsc_pipe_costs_t costs{};
  costs.struct_size = sizeof costs;
  costs.n = 1;
  costs.overlap = 1;
  return costs;
}

dsc::PipelineCosts read_costs(const dsc_pipe_costs_t* given, size_t parts) {
  const auto costs = dsc::read_sized(given, default_costs(), kFirstCostsSize, "costs");
  if (costs.n != 1 && costs.n != parts)
    dsc::fail(DSC_ERR_INVALID_ARG, "costs->n is %zu, expected 1 or %zu: one for each part of the model",
              costs.n, parts);
  if (!(costs.overlap > 0 && costs.overlap <= 1))
    dsc::fail(DSC_ERR_INVALID_ARG, "costs->overlap is %g, expected more than 0 and at most 1", costs.overlap);
  dsc::PipelineCosts all;
  const auto read = [&](std::vector<double>& list, const double* values) {
    if (values) list.assign(values, values + costs.n);
  };
  read(all.forward, costs.forward);
  read(all.backward_input, costs.backward_input);
  read(all.backward_weight, costs.backward_weight);
  read(all.message_bytes, costs.message_bytes);
  read(all.activation_bytes, costs.activation_bytes);
  read(all.static_bytes, costs.static_bytes);
  read(all.gradient_bytes, costs.gradient_bytes);
  all.overlap = costs.overlap;
  all.latency = costs.latency;
  all.bytes_per_time = costs.bytes_per_time;
  all.bucket_bytes = costs.bucket_bytes;
  all.reduce_latency = costs.reduce_latency;
  all.reduce_bytes_per_time = costs.reduce_bytes_per_time;
  return all;
}

dsc_pipe_span_t public_span(const dsc::PipelineSpan& span) {
  return {span.stage, static_cast<int32_t>(span.op.op), span.op.chunk, span.op.micro_batch, span.start,
          span.end};
}

dsc_pipe_report_t read_report(const dsc_pipe_report_t* given) {
  dsc::require(given, "report");
  auto report = dsc::read_sized(given, dsc_pipe_report_t{}, kFirstReportSize, "report");
  if (report.timeline_capacity > 0) dsc::require(report.timeline, "report->timeline");
  if (report.critical_path_capacity > 0) dsc::require(report.critical_path, "report->critical_path");
  return report;
}

void give_stages(const dsc::PipelineReport& found, dsc_pipe_stage_report_t* stages) {
  for (const dsc::StageReport& it : found.stages)
    *stages++ = {.busy = it.busy,
                 .start = it.start,
                 .end = it.end,
                 .idle = found.makespan - it.busy,
                 .own_window_idle = it.end - it.start - it.busy,
                 .reduced = it.reduced,
                 .peak_bytes = it.peak_bytes,
                 .peak_activations = it.peak_activations};
}

void give_timeline(const dsc::PipelineReport& found, dsc_pipe_report_t& report) {
  report.timeline_count = 0;
  for (const auto& spans : found.timeline)
    for (const auto& span : spans)
      if (const size_t i = report.timeline_count++; i < report.timeline_capacity)
        report.timeline[i] = public_span(span);
}

// Without room for all of it the end is given, which says what to shorten.
void give_critical_path(const dsc::PipelineReport& found, dsc_pipe_report_t& report) {
  const auto& path = found.critical_path;
  report.critical_path_count = path.size();
  const size_t given = std::min(path.size(), report.critical_path_capacity);
  std::transform(path.end() - static_cast<ptrdiff_t>(given), path.end(), report.critical_path, public_span);
}

void copy_name(char (&target)[32], const std::string& name) {
  std::snprintf(target, sizeof target, "%s", name.c_str());
}

dsc_pipe_search_t read_search(const dsc_pipe_search_t* given) {
  const auto search = dsc::read_sized(given, dsc_pipe_search_t{}, kFirstSearchSize, "search");
  if (search.activations < 0)
    dsc::fail(DSC_ERR_INVALID_ARG, "activations is %lld, expected 0 or more",
              static_cast<long long>(search.activations));
  if (!(search.bytes >= 0)) dsc::fail(DSC_ERR_INVALID_ARG, "bytes is %g, expected 0 or more", search.bytes);
  return search;
}

dsc_pipe_search_t result_of(const dsc::BestPlan& found, dsc_pipe_search_t search) {
  search.makespan = found.report.makespan;
  search.bound = found.bound;
  search.best_named_makespan = found.best_named_makespan;
  search.is_optimal = found.is_optimal ? 1 : 0;
  copy_name(search.best_named, found.best_named);
  copy_name(search.origin, found.origin);
  return search;
}

void check_find(const dsc_pipe_schedule_options_t& options) {
  if (options.name && std::strcmp(options.name, "auto") != 0)
    dsc::fail(DSC_ERR_INVALID_ARG, "name is \"%.32s\", expected NULL or \"auto\"", options.name);
  if (options.merge_backward != 0 || options.placement != 0)
    dsc::fail(DSC_ERR_INVALID_ARG, "merge_backward is %d and placement %d, expected 0: both are looked for",
              options.merge_backward, options.placement);
}

}  // namespace

dsc_result_t dsc_pipe_schedule_find(const dsc_pipe_schedule_options_t* options, const dsc_pipe_costs_t* costs,
                                    dsc_pipe_search_t* search, dsc_pipe_schedule_t** schedule) {
  return dsc::guard(__func__, [&] {
    dsc::require(schedule, "schedule");
    *schedule = nullptr;
    dsc::require(options, "options");
    const auto given = dsc::read_schedule_options(options);
    check_find(given);
    auto spec = dsc::spec_of(given);
    dsc::complete_custom(spec);
    const auto wanted = read_search(search);
    const auto read = read_costs(costs, static_cast<size_t>(spec.stages) * static_cast<size_t>(spec.chunks));
    const auto found = dsc::find_best_plan(std::move(spec), read,
                                           {.activations = wanted.activations, .bytes = wanted.bytes});
    *schedule = dsc::open_schedule(found.plan, dsc::checked_stage(given.stage, found.plan->spec.stages));
    if (search) dsc::write_sized(search, result_of(found, wanted), kFirstSearchSize, "search");
  });
}

dsc_result_t dsc_pipe_costs_init(dsc_pipe_costs_t* costs, size_t struct_size) {
  return dsc::guard_pure(
      __func__, [&] { dsc::init_sized(costs, struct_size, default_costs(), kFirstCostsSize, "costs"); });
}

dsc_result_t dsc_pipe_simulate(dsc_pipe_schedule_t* schedule, const dsc_pipe_costs_t* costs,
                               dsc_pipe_report_t* report) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_pipe_schedule(schedule);
    dsc_pipe_report_t wanted = read_report(report);
    const dsc::PipelinePlan& plan = *pinned->plan();
    const auto found = dsc::simulate(
        plan, read_costs(costs, static_cast<size_t>(plan.placement.parts())),
        {.timeline = wanted.timeline != nullptr, .critical_path = wanted.critical_path != nullptr});
    wanted.makespan = found.makespan;
    if (wanted.stages) give_stages(found, wanted.stages);
    give_timeline(found, wanted);
    give_critical_path(found, wanted);
    dsc::write_sized(report, wanted, kFirstReportSize, "report");
  });
}

dsc_result_t dsc_pipe_draw(dsc_pipe_schedule_t* schedule, const dsc_pipe_costs_t* costs, int32_t picture,
                           char* text, size_t capacity, size_t* bytes) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_pipe_schedule(schedule);
    dsc::check_text_room(text, capacity, bytes);
    const dsc::PipelinePlan& plan = *pinned->plan();
    dsc::give_text(dsc::draw(plan, read_costs(costs, static_cast<size_t>(plan.placement.parts())),
                             static_cast<dsc::PipePicture>(picture)),
                   text, capacity, bytes);
  });
}
