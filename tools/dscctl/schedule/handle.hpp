// A handle of a schedule, and calls of the library with it.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "dsc/dsc.h"

namespace dscctl::schedule {

// Returns the last error message of the library without names of the C interface, which the user does not
// call.
inline std::string last_error() {
  std::string message = dsc_last_error_message();
  if (const size_t colon = message.find(": "); colon != std::string::npos) message.erase(0, colon + 2);
  for (const std::string name : {"options->", "costs->"})
    for (size_t at = 0; (at = message.find(name, at)) != std::string::npos;) message.erase(at, name.size());
  return message;
}

inline void expect_ok(dsc_result_t result) {
  if (result != DSC_OK) throw std::runtime_error(last_error());
}

struct Destroy {
  void operator()(dsc_pipe_schedule_t* schedule) const { dsc_pipe_schedule_destroy(schedule); }
  void operator()(dsc_pipe_report_t* report) const { dsc_pipe_report_destroy(report); }
};
using Handle = std::unique_ptr<dsc_pipe_schedule_t, Destroy>;
using Report = std::unique_ptr<dsc_pipe_report_t, Destroy>;

// Costs with their lists. The lists exist as long as this object, so that as_c() can refer to them.
struct Costs {
  std::vector<double> forward{1}, backward_input{1}, backward_weight{1};
  std::vector<double> message_bytes{0}, activation_bytes{0}, static_bytes{0}, gradient_bytes{0};
  double overlap = 1;
  double latency = 0;
  double bytes_per_time = 0;  // 0 here and in the fields below: unlimited
  double bucket_bytes = 0;
  double reduce_latency = 0;
  double reduce_bytes_per_time = 0;
  double after = 0;  // time after all operations, which the library does not know

  // Each list must have one entry for all parts, or one entry for each part. Throws if the numbers of parts
  // differ.
  dsc_pipe_costs_t as_c();
  // Converts these costs to costs for each part of a schedule. A list with one value, or with one value for
  // each stage, holds costs of whole stages, which the chunks of a stage share equally; only a message has
  // the same size in each part. A list with a value for each part is not changed.
  Costs of_parts(const dsc_pipe_schedule_info_t& schedule) const;
};

// The result of a simulation, with statistics of every stage.
struct Priced {
  double makespan = 0;
  std::vector<dsc_pipe_stage_stats_t> stages;
};

double idle_part(const Priced& priced);          // share of the makespan, over all stages
int64_t peak_activations(const Priced& priced);  // on the stage that holds most
size_t fullest_stage(const Priced& priced);      // the stage with the highest peak in bytes

dsc_pipe_schedule_info_t describe(const Handle& schedule);
std::string name_of(const Handle& schedule);
Report report_of(const Handle& schedule, const dsc_pipe_costs_t& costs);
Priced simulate(const Handle& schedule, const dsc_pipe_costs_t& costs);
Handle make(const dsc_pipe_schedule_options_t& options);
// Returns options for a schedule of the whole pipeline, with defaults.
dsc_pipe_schedule_options_t whole_pipeline();
// The best schedule for the given costs and limits, with the result of the search.
struct Found {
  Handle schedule;
  dsc_pipe_search_result_t result;
};
dsc_pipe_search_options_t no_limits();
Found find(const dsc_pipe_schedule_options_t& options, const dsc_pipe_costs_t& costs,
           const dsc_pipe_search_options_t& limits);
Handle read(const std::string& text, int32_t format, const dsc_pipe_schedule_options_t& options);
std::string write(const Handle& schedule, int32_t format);
std::string draw(const Handle& schedule, const dsc_pipe_costs_t& costs, int32_t picture);

bool differ_in_chunks(const std::vector<Handle>& schedules);
int32_t stage_of(const dsc_pipe_schedule_info_t& schedule, int32_t part);

}  // namespace dscctl::schedule
