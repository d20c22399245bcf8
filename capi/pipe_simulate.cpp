#include "dsc/pipe_simulate.h"

#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/guard.hpp"
#include "base/options.hpp"
#include "checks.hpp"
#include "give.hpp"
#include "pipe_call.hpp"
#include "pipeline/best_plan.hpp"
#include "pipeline/draw.hpp"
#include "pipeline/simulate.hpp"

namespace {

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
  const auto costs = dsc::read_sized(given, default_costs(), "costs");
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

// The results of one simulation. The timeline and the critical path are computed only on request, because
// they need much more memory.
class PipeReport {
 public:
  PipeReport(std::shared_ptr<const dsc::PipelinePlan> plan, dsc::PipelineCosts costs)
      : plan_(std::move(plan)), costs_(std::move(costs)), totals_(dsc::simulate(*plan_, costs_)) {}

  const dsc::PipelineReport& totals() const noexcept { return totals_; }

  const std::vector<dsc::PipelineSpan>& timeline() const {
    std::call_once(timeline_once_, [&] {
      const auto found = dsc::simulate(*plan_, costs_, {.timeline = true});
      // Assigned only when it is complete, so that a lack of memory leaves it empty.
      std::vector<dsc::PipelineSpan> all;
      for (const auto& spans : found.timeline) all.insert(all.end(), spans.begin(), spans.end());
      timeline_ = std::move(all);
    });
    return timeline_;
  }

  const std::vector<dsc::PipelineSpan>& critical_path() const {
    std::call_once(critical_path_once_, [&] {
      critical_path_ = dsc::simulate(*plan_, costs_, {.critical_path = true}).critical_path;
    });
    return critical_path_;
  }

 private:
  std::shared_ptr<const dsc::PipelinePlan> plan_;
  dsc::PipelineCosts costs_;
  dsc::PipelineReport totals_;
  mutable std::once_flag timeline_once_, critical_path_once_;
  mutable std::vector<dsc::PipelineSpan> timeline_, critical_path_;
};

dsc::Pinned<PipeReport> pin_report(const dsc_pipe_report_t* report) {
  return dsc::Pinned<PipeReport>(dsc::HandleKind::kPipeReport, report);
}

dsc_pipe_span_t public_span(const dsc::PipelineSpan& span) {
  return {.struct_size = sizeof(dsc_pipe_span_t),
          .start = span.start,
          .finish = span.end,
          .stage = span.stage,
          .op = static_cast<int32_t>(span.op.op),
          .chunk = span.op.chunk,
          .micro_batch = span.op.micro_batch};
}

void copy_name(char (&target)[32], const std::string& name) {
  std::snprintf(target, sizeof target, "%s", name.c_str());
}

dsc_pipe_search_options_t default_search_options() {
  dsc_pipe_search_options_t options{};
  options.struct_size = sizeof options;
  return options;
}

dsc::PipelineLimits read_limits(const dsc_pipe_search_options_t* given) {
  const auto search = dsc::read_sized(given, default_search_options(), "search");
  if (search.activations < 0)
    dsc::fail(DSC_ERR_INVALID_ARG, "activations is %lld, expected 0 or more",
              static_cast<long long>(search.activations));
  if (!(search.bytes >= 0)) dsc::fail(DSC_ERR_INVALID_ARG, "bytes is %g, expected 0 or more", search.bytes);
  return {.activations = search.activations, .bytes = search.bytes};
}

dsc_pipe_search_result_t result_of(const dsc::BestPlan& found) {
  dsc_pipe_search_result_t result{};
  result.makespan = found.report.makespan;
  result.bound = found.bound;
  result.best_named_makespan = found.best_named_makespan;
  result.is_optimal = found.is_optimal ? 1 : 0;
  copy_name(result.best_named, found.best_named);
  copy_name(result.origin, found.origin);
  return result;
}

void check_find(const dsc_pipe_schedule_options_t& options) {
  if (options.name && std::strcmp(options.name, "auto") != 0)
    dsc::fail(DSC_ERR_INVALID_ARG, "name is \"%.32s\", expected NULL or \"auto\"", options.name);
  if (options.merge_backward != 0 || options.placement != 0)
    dsc::fail(DSC_ERR_INVALID_ARG,
              "merge_backward is %d and placement is %d, expected 0 for both: the search chooses them",
              options.merge_backward, options.placement);
}

}  // namespace

dsc_result_t dsc_pipe_search(const dsc_pipe_schedule_options_t* options, const dsc_pipe_costs_t* costs,
                             const dsc_pipe_search_options_t* search, dsc_pipe_search_result_t* result,
                             dsc_pipe_schedule_t** schedule) {
  return dsc::guard(__func__, [&] {
    dsc::require(schedule, "schedule");
    *schedule = nullptr;
    dsc::require(options, "options");
    const auto given = dsc::read_schedule_options(options);
    check_find(given);
    auto spec = dsc::spec_of(given);
    dsc::complete_custom(spec);
    const auto limits = read_limits(search);
    if (result) dsc::struct_size_of(result, "result");
    const auto read = read_costs(costs, static_cast<size_t>(spec.stages) * static_cast<size_t>(spec.chunks));
    const auto found = dsc::find_best_plan(std::move(spec), read, limits);
    *schedule = dsc::open_schedule(found.plan, dsc::checked_stage(given.stage, found.plan->spec.stages));
    if (result) dsc::write_sized(result, result_of(found), "result");
  });
}

dsc_result_t dsc_pipe_costs_init(dsc_pipe_costs_t* costs, size_t struct_size) {
  return dsc::guard_pure(__func__, [&] { dsc::init_sized(costs, struct_size, default_costs(), "costs"); });
}

dsc_result_t dsc_pipe_search_options_init(dsc_pipe_search_options_t* options, size_t struct_size) {
  return dsc::guard_pure(__func__,
                         [&] { dsc::init_sized(options, struct_size, default_search_options(), "options"); });
}

dsc_result_t dsc_pipe_simulate(const dsc_pipe_schedule_t* schedule, const dsc_pipe_costs_t* costs,
                               dsc_pipe_report_t** report) {
  return dsc::guard(__func__, [&] {
    dsc::require(report, "report") = nullptr;
    const auto pinned = dsc::pin_pipe_schedule(schedule);
    auto read = read_costs(costs, static_cast<size_t>(pinned->plan()->placement.parts()));
    *report = dsc::open_handle<dsc_pipe_report_t>(
        dsc::HandleKind::kPipeReport, std::make_shared<PipeReport>(pinned->plan(), std::move(read)));
  });
}

dsc_result_t dsc_pipe_report_makespan(const dsc_pipe_report_t* report, double* makespan) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_report(report);
    dsc::require(makespan, "makespan") = pinned->totals().makespan;
  });
}

dsc_result_t dsc_pipe_report_stages(const dsc_pipe_report_t* report, dsc_pipe_stage_stats_t* stages,
                                    size_t capacity, size_t* needed) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_report(report);
    const double makespan = pinned->totals().makespan;
    const auto convert = [&](const dsc::StageReport& it) {
      return dsc_pipe_stage_stats_t{.struct_size = sizeof(dsc_pipe_stage_stats_t),
                                    .busy = it.busy,
                                    .start = it.start,
                                    .finish = it.end,
                                    .idle = makespan - it.busy,
                                    .own_window_idle = it.end - it.start - it.busy,
                                    .reduced = it.reduced,
                                    .peak_bytes = it.peak_bytes,
                                    .peak_activations = it.peak_activations};
    };
    return dsc::give_structs("stages", pinned->totals().stages, stages, capacity, needed, convert);
  });
}

dsc_result_t dsc_pipe_report_timeline(const dsc_pipe_report_t* report, dsc_pipe_span_t* spans,
                                      size_t capacity, size_t* needed) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_report(report);
    return dsc::give_structs("spans", pinned->timeline(), spans, capacity, needed, public_span);
  });
}

dsc_result_t dsc_pipe_report_critical_path(const dsc_pipe_report_t* report, dsc_pipe_span_t* spans,
                                           size_t capacity, size_t* needed) {
  return dsc::guard(__func__, [&] {
    const auto pinned = pin_report(report);
    return dsc::give_structs("spans", pinned->critical_path(), spans, capacity, needed, public_span);
  });
}

dsc_result_t dsc_pipe_report_destroy(dsc_pipe_report_t* report) {
  return dsc::guard(__func__, [&] {
    if (report) pin_report(report).close();
  });
}

dsc_result_t dsc_pipe_draw(const dsc_pipe_schedule_t* schedule, const dsc_pipe_costs_t* costs,
                           int32_t picture, char* text, size_t capacity, size_t* needed) {
  return dsc::guard(__func__, [&] {
    const auto pinned = dsc::pin_pipe_schedule(schedule);
    const dsc::PipelinePlan& plan = *pinned->plan();
    return dsc::give_text(dsc::draw(plan, read_costs(costs, static_cast<size_t>(plan.placement.parts())),
                                    static_cast<dsc::PipePicture>(picture)),
                          text, capacity, needed);
  });
}
