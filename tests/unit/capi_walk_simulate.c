/* The simulated cost of a pipeline schedule. */
#include <stdint.h>

#include "capi_walk.h"

#define S walk_world.schedule

static void costs_init(void) {
  dsc_pipe_costs_t costs;
  memset(&costs, 0x77, sizeof costs);
  WALK_INVALID(dsc_pipe_costs_init(NULL, sizeof costs));
  WALK_INVALID(dsc_pipe_costs_init(&costs, sizeof costs - 1));
  WALK(DSC_OK, dsc_pipe_costs_init(&costs, sizeof costs));
  EXPECT(costs.n == 1 && costs.overlap == 1 && costs.forward == NULL && costs.latency == 0);
}

static void simulate(void) {
  dsc_pipe_report_t* report = (dsc_pipe_report_t*)S;
  dsc_pipe_costs_t costs;
  WALK(DSC_OK, dsc_pipe_costs_init(&costs, sizeof costs));
  WALK_BAD_HANDLES(WALK_SCHEDULE, dsc_pipe_schedule_t, dsc_pipe_simulate(bad, &costs, &report));
  WALK_INVALID(dsc_pipe_simulate(S, &costs, NULL));
  costs.n = 3;
  WALK_INVALID(dsc_pipe_simulate(S, &costs, &report));
  costs.n = 1;
  for (int i = 0; i < 3; ++i) {
    costs.overlap = (double[]){0, 1.01, -1}[i];
    WALK_INVALID(dsc_pipe_simulate(S, &costs, &report));
  }
  costs.overlap = 1;
  costs.latency = -1;
  WALK_INVALID(dsc_pipe_simulate(S, &costs, &report));
  EXPECT(report == NULL);
}

/* Returns the report of S with default costs. */
static dsc_pipe_report_t* made_report(void) {
  dsc_pipe_report_t* report = NULL;
  WALK(DSC_OK, dsc_pipe_simulate(S, NULL, &report));
  return report;
}

static void report_makespan(void) {
  dsc_pipe_report_t* const report = made_report();
  double makespan = 99;
  WALK_BAD_HANDLES(WALK_REPORT, dsc_pipe_report_t, dsc_pipe_report_makespan(bad, &makespan));
  WALK_INVALID(dsc_pipe_report_makespan(report, NULL));
  EXPECT(makespan == 99);
  WALK(DSC_OK, dsc_pipe_report_makespan(report, &makespan));
  EXPECT(makespan == 33);
  WALK(DSC_OK, dsc_pipe_report_destroy(report));
}

static void report_stages(void) {
  dsc_pipe_report_t* const report = made_report();
  dsc_pipe_stage_stats_t stages[4] = {{.struct_size = sizeof *stages, .busy = 99}};
  size_t n = 99;
  WALK_BAD_HANDLES(WALK_REPORT, dsc_pipe_report_t, dsc_pipe_report_stages(bad, stages, 4, &n));
  WALK_INVALID(dsc_pipe_report_stages(report, stages, 4, NULL));
  WALK_INVALID(dsc_pipe_report_stages(report, NULL, 4, &n));
  stages[0].struct_size = sizeof *stages - 1;
  WALK_INVALID(dsc_pipe_report_stages(report, stages, 4, &n));
  stages[0].struct_size = sizeof *stages;
  EXPECT(stages[0].busy == 99);
  WALK(DSC_TRUNCATED, dsc_pipe_report_stages(report, stages, 1, &n));
  EXPECT(n == 4 && stages[0].peak_activations == 4 && stages[1].struct_size == 0);
  WALK(DSC_OK, dsc_pipe_report_stages(report, stages, 4, &n));
  EXPECT(stages[3].idle == 9 && stages[0].own_window_idle == 9 && stages[3].struct_size == sizeof *stages);
  WALK(DSC_OK, dsc_pipe_report_destroy(report));
}

static void report_timeline(void) {
  dsc_pipe_report_t* const report = made_report();
  dsc_pipe_span_t spans[64] = {{.struct_size = sizeof *spans}};
  size_t n = 99;
  WALK_BAD_HANDLES(WALK_REPORT, dsc_pipe_report_t, dsc_pipe_report_timeline(bad, spans, 64, &n));
  WALK_INVALID(dsc_pipe_report_timeline(report, spans, 64, NULL));
  WALK_INVALID(dsc_pipe_report_timeline(report, NULL, 64, &n));
  WALK(DSC_OK, dsc_pipe_report_timeline(report, NULL, 0, &n));
  EXPECT(n == 64);
  WALK(DSC_TRUNCATED, dsc_pipe_report_timeline(report, spans, 63, &n));
  EXPECT(spans[0].op == DSC_PIPE_OP_FORWARD && spans[0].finish == 1 && spans[63].struct_size == 0);
  WALK(DSC_OK, dsc_pipe_report_timeline(report, spans, 64, &n));
  EXPECT(spans[63].stage == 3 && spans[63].op == DSC_PIPE_OP_BACKWARD);
  WALK(DSC_OK, dsc_pipe_report_destroy(report));
}

static void report_critical_path(void) {
  dsc_pipe_report_t* const report = made_report();
  dsc_pipe_span_t spans[64] = {{.struct_size = sizeof *spans}};
  size_t n = 99;
  WALK_BAD_HANDLES(WALK_REPORT, dsc_pipe_report_t, dsc_pipe_report_critical_path(bad, spans, 64, &n));
  WALK_INVALID(dsc_pipe_report_critical_path(report, spans, 64, NULL));
  WALK_INVALID(dsc_pipe_report_critical_path(report, NULL, 64, &n));
  WALK(DSC_OK, dsc_pipe_report_critical_path(report, spans, 64, &n));
  EXPECT(n > 8 && n <= 64 && spans[0].start == 0 && spans[n - 1].finish == 33);
  WALK(DSC_OK, dsc_pipe_report_destroy(report));
}

static void report_destroy(void) {
  dsc_pipe_report_t* const report = made_report();
  double makespan = 99;
  WALK(DSC_OK, dsc_pipe_report_destroy(NULL));
  WALK(DSC_OK, dsc_pipe_report_destroy(report));
  WALK(DSC_ERR_BAD_HANDLE, dsc_pipe_report_destroy(report));
  WALK(DSC_ERR_BAD_HANDLE, dsc_pipe_report_makespan(report, &makespan));
}

static void search_options_init(void) {
  dsc_pipe_search_options_t limits;
  memset(&limits, 0x77, sizeof limits);
  WALK_INVALID(dsc_pipe_search_options_init(NULL, sizeof limits));
  WALK_INVALID(dsc_pipe_search_options_init(&limits, sizeof limits - 1));
  WALK(DSC_OK, dsc_pipe_search_options_init(&limits, sizeof limits));
  EXPECT(limits.activations == 0 && limits.bytes == 0);
}

const walk_step_t walk_simulate[] = {
    {"dsc_pipe_costs_init", costs_init},
    {"dsc_pipe_simulate", simulate},
    {"dsc_pipe_report_makespan", report_makespan},
    {"dsc_pipe_report_stages", report_stages},
    {"dsc_pipe_report_timeline", report_timeline},
    {"dsc_pipe_report_critical_path", report_critical_path},
    {"dsc_pipe_report_destroy", report_destroy},
    {"dsc_pipe_search_options_init", search_options_init},
    {NULL, NULL},
};
