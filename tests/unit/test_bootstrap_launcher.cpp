// The sources of rank and world size: every launcher of the table, their order, and the errors.
#include <setjmp.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "bootstrap/host_identity.hpp"
#include "bootstrap/init_method.hpp"
#include "bootstrap/launcher.hpp"
#include "bootstrap/local_address.hpp"

// Included last because it defines macros such as fail().
extern "C" {
#include <cmocka.h>
}

namespace {

using namespace dsc;
using Variables = std::map<std::string, std::string>;

Environment lookup(const Variables& variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end() || found->second.empty()) return std::nullopt;
    return found->second;
  };
}

AddressLocation here(const std::string& address) {
  if (address == "127.0.0.1") return AddressLocation::kLoopback;
  return address == "here" ? AddressLocation::kThisHost : AddressLocation::kElsewhere;
}

PmixJob no_pmix() { throw Error(DSC_ERR_NO_BACKEND, "libpmix is not here"); }

Launch launch(const Variables& variables, const LaunchOptions& options = {}, const AskPmix& ask = no_pmix) {
  return find_launch(options, lookup(variables), here, ask);
}

struct Outcome {
  dsc_result_t code = DSC_OK;
  std::string text;
};

Outcome refusal(const Variables& variables, const LaunchOptions& options = {}, const AskPmix& ask = no_pmix) {
  try {
    launch(variables, options, ask);
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {};
}

void assert_refused(const Outcome& outcome, dsc_result_t code, std::initializer_list<const char*> words) {
  if (outcome.code != code)
    print_error("expected %d, came %d: %s\n", code, outcome.code, outcome.text.c_str());
  assert_int_equal(outcome.code, code);
  for (const char* word : words) {
    if (outcome.text.find(word) == std::string::npos)
      print_error("no '%s' in: %s\n", word, outcome.text.c_str());
    assert_true(outcome.text.find(word) != std::string::npos);
  }
}

void assert_launch(const Launch& launch, int32_t rank, int32_t size, int32_t local_rank, int32_t local_size) {
  assert_int_equal(launch.rank, rank);
  assert_int_equal(launch.world_size, size);
  assert_int_equal(launch.local_rank, local_rank);
  assert_int_equal(launch.local_world_size, local_size);
}

bool says(const std::string& text, const char* words) { return text.find(words) != std::string::npos; }

void assert_way(const Launch& launch, MeetingWay way, std::initializer_list<const char*> words) {
  assert_int_equal(static_cast<int>(launch.way), static_cast<int>(way));
  for (const char* word : words) {
    if (!says(launch.way_from, word)) print_error("no '%s' in: %s\n", word, launch.way_from.c_str());
    assert_true(says(launch.way_from, word));
  }
}

const Variables kTorchrun = {{"RANK", "2"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "2"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "node7.cluster"},
                             {"MASTER_PORT", "29400"},
                             {"TORCHELASTIC_RUN_ID", "run"},
                             {"TORCHELASTIC_RESTART_COUNT", "3"}};

void test_nothing_set_is_one_process(void**) {
  const Launch alone = launch({});
  assert_launch(alone, 0, 1, 0, 1);
  assert_string_equal(alone.source.c_str(), "one process");
  assert_string_equal(alone.master_addr.c_str(), "127.0.0.1");
  assert_int_equal(alone.master_port, 29500);
  assert_true(says(alone.report, "Slurm: SLURM_STEP_ID is not set"));
}

void test_torchrun(void**) {
  const Launch found = launch(kTorchrun);
  assert_launch(found, 2, 4, 2, 4);
  assert_string_equal(found.master_addr.c_str(), "node7.cluster");  // no look-up: all ranks are on this host
  assert_int_equal(found.master_port, 29400);
  assert_string_equal(found.job_id.c_str(), "run.3");
  assert_true(says(found.report, "chosen: rank 2 of 4 from torchrun"));
}

void test_rank_and_size_are_enough_on_one_host(void**) {
  assert_launch(launch({{"RANK", "1"}, {"WORLD_SIZE", "2"}}), 1, 2, -1, -1);
}

// Rank 1 of 2 in the variables of every launcher.
const struct Row {
  const char* source;
  Variables variables;
  int32_t local_size;
  const char* job_id;
} kRows[] = {
    {"torchrun",
     {{"RANK", "1"},
      {"WORLD_SIZE", "2"},
      {"LOCAL_RANK", "1"},
      {"LOCAL_WORLD_SIZE", "2"},
      {"MASTER_ADDR", "here"},
      {"TORCHELASTIC_RUN_ID", "r"},
      {"TORCHELASTIC_RESTART_COUNT", "0"}},
     2,
     "r.0"},
    {"deepspeed",
     {{"RANK", "1"},
      {"WORLD_SIZE", "2"},
      {"LOCAL_RANK", "1"},
      {"LOCAL_SIZE", "2"},
      {"CROSS_RANK", "0"},
      {"CROSS_SIZE", "1"}},
     2,
     ""},
    {"dscrun",
     {{"RANK", "1"},
      {"WORLD_SIZE", "2"},
      {"LOCAL_RANK", "1"},
      {"LOCAL_WORLD_SIZE", "2"},
      {"DSC_LAUNCHER", "dscrun"},
      {"DSC_JOB_ID", "d"}},
     2,
     "d"},
    {"environment", {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}}, -1, ""},
    {"Azure ML",
     {{"AZUREML_EXPERIMENT_ID", "x"},
      {"OMPI_COMM_WORLD_RANK", "1"},
      {"OMPI_COMM_WORLD_SIZE", "2"},
      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
      {"OMPI_MCA_ess_base_jobid", "77"}},
     2,
     "77"},
    {"SageMaker",
     {{"SM_TRAINING_ENV", "{\"hosts\": [\"algo-1\"]}"},
      {"OMPI_COMM_WORLD_RANK", "1"},
      {"OMPI_COMM_WORLD_SIZE", "2"},
      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
     2,
     ""},
    {"Open MPI",
     {{"OMPI_COMM_WORLD_RANK", "1"},
      {"OMPI_COMM_WORLD_SIZE", "2"},
      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
      {"OMPI_MCA_ess_base_jobid", "77"},
      {"PMIX_NAMESPACE", "77"},
      {"PMIX_RANK", "1"}},
     2,
     "77.77"},
    {"MVAPICH",
     {{"MV2_COMM_WORLD_RANK", "1"},
      {"MV2_COMM_WORLD_SIZE", "2"},
      {"MV2_COMM_WORLD_LOCAL_RANK", "1"},
      {"MV2_COMM_WORLD_LOCAL_SIZE", "2"}},
     2,
     ""},
    {"PALS",
     {{"PALS_RANKID", "1"},
      {"PMI_RANK", "1"},
      {"PMI_SIZE", "2"},
      {"PALS_LOCAL_RANKID", "1"},
      {"PMI_LOCAL_SIZE", "2"},
      {"PALS_APID", "a"}},
     2,
     "a"},
    {"Flux",
     {{"FLUX_TASK_RANK", "1"},
      {"FLUX_JOB_SIZE", "2"},
      {"FLUX_TASK_LOCAL_ID", "1"},
      {"FLUX_JOB_NNODES", "1"},
      {"FLUX_JOB_ID", "f"},
      {"PMI_RANK", "1"},
      {"PMI_SIZE", "2"}},
     -1,
     "f"},
    {"Slurm",
     {{"SLURM_PROCID", "1"},
      {"SLURM_NTASKS", "2"},
      {"SLURM_LOCALID", "1"},
      {"SLURM_NNODES", "1"},
      {"SLURM_JOB_ID", "9"},
      {"SLURM_STEP_ID", "0"}},
     -1,
     "9.0"},
    {"MPICH (Hydra)",
     {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}},
     2,
     ""},
};

void test_table_of_launchers(void**) {
  for (const Row& row : kRows) {
    const Launch found = launch(row.variables);
    assert_string_equal(found.source.c_str(), row.source);
    assert_launch(found, 1, 2, 1, row.local_size);
    assert_string_equal(found.job_id.c_str(), row.job_id);
  }
  // kLaunchers also has PMIx. It has no row here, because it gives rank and size without variables.
  assert_int_equal(std::size(kRows) + 1, std::size(kLaunchers));
}

void test_every_row_comes_in_its_order(void**) {
  Variables all;
  for (auto row = std::rbegin(kRows); row != std::rend(kRows); ++row) {
    all.insert(row->variables.begin(), row->variables.end());
    assert_string_equal(launch(all).source.c_str(), row->source);
  }
}

// Two variables of one launcher that contradict each other.
void test_variables_that_must_agree(void**) {
  const struct {
    const char* source;
    const char* variable;
    const char* other;
  } cases[] = {{"deepspeed", "LOCAL_WORLD_SIZE", "LOCAL_SIZE"},
               {"PALS", "PMI_RANK", "PALS_RANKID"},
               {"PALS", "PMI_LOCAL_RANK", "PALS_LOCAL_RANKID"},
               {"MPICH (Hydra)", "PMI_LOCAL_RANK", "MPI_LOCALRANKID"},
               {"MPICH (Hydra)", "PMI_LOCAL_SIZE", "MPI_LOCALNRANKS"}};
  for (const auto& entry : cases) {
    const Row* row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& candidate) {
      return std::string_view(candidate.source) == entry.source;
    });
    Variables variables = row->variables;
    variables[entry.variable] = variables.at(entry.other);
    assert_launch(launch(variables), 1, 2, 1, 2);
    variables[entry.variable] = "0";
    const std::string said = std::string(entry.variable) + " is 0";
    assert_refused(refusal(variables), DSC_ERR_CONFIG, {said.c_str(), entry.other});
  }
  Variables variables = kRows[1].variables;
  variables["CROSS_SIZE"] = "2";
  assert_refused(refusal(variables), DSC_ERR_CONFIG,
                 {"LOCAL_SIZE is 2", "WORLD_SIZE is 2", "CROSS_SIZE is 2"});
  variables["CROSS_SIZE"] = "0";
  assert_refused(refusal(variables), DSC_ERR_CONFIG, {"CROSS_SIZE is 0"});
}

// Outside a step Slurm's variables describe the whole job.
void test_a_slurm_step_smaller_than_its_job(void**) {
  Variables variables = {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "8"},         {"SLURM_STEP_NUM_TASKS", "2"},
                         {"SLURM_NNODES", "4"}, {"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_STEP_ID", "0"}};
  assert_launch(launch(variables), 1, 2, -1, -1);
}

void test_precedence_decides_across_launchers(void**) {
  Variables both = kTorchrun;
  both.insert({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_NNODES", "2"}, {"SLURM_STEP_ID", "0"}});
  assert_launch(launch(both), 2, 4, 2, 4);
  LaunchOptions options;
  options.rank = 5;
  options.world_size = 6;
  options.init_method = "tcp://127.0.0.1:3000";
  const Launch chosen = launch(both, options);
  assert_launch(chosen, 5, 6, -1, -1);
  assert_string_equal(chosen.source.c_str(), "options");
}

void test_batch_script_is_not_a_step(void**) {
  assert_launch(launch({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_NNODES", "2"}}), 0, 1, 0, 1);
}

void test_sources_mask(void**) {
  Variables both = kTorchrun;
  both.insert({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}});
  LaunchOptions options;
  options.sources = DSC_SOURCE_LAUNCHER;
  options.init_method = "tcp://here:3000";
  assert_launch(launch(both, options), 0, 2, -1, -1);
  options.sources = DSC_SOURCE_SINGLE;
  assert_launch(launch(both, options), 0, 1, 0, 1);
  options.sources = DSC_SOURCE_ENV;
  assert_refused(refusal({}, options), DSC_ERR_CONFIG, {"no source that", "RANK is not set"});
  options.sources = 1024;
  assert_refused(refusal({}, options), DSC_ERR_INVALID_ARG, {"0x400"});
  options.sources = DSC_SOURCE_ENV;
  options.rank = 0;
  options.world_size = 1;
  assert_refused(refusal({}, options), DSC_ERR_INVALID_ARG, {"excludes DSC_SOURCE_OPTIONS"});
}

const Variables kPmix = {{"PMIX_NAMESPACE", "n"}, {"PMIX_RANK", "0"}};

void test_pmix_alone_without_its_library(void**) {
  assert_refused(refusal(kPmix), DSC_ERR_NO_BACKEND, {"PMIx", "libpmix is not here", "RANK"});
}

void test_pmix_is_asked(void**) {
  PmixJob job;
  job.rank = 2;
  job.size = 4;
  job.local_rank = 1;
  job.local_size = 4;
  const AskPmix ask = [&] { return job; };
  const Launch found = launch(kPmix, {}, ask);
  assert_launch(found, 2, 4, 1, 4);
  assert_string_equal(found.source.c_str(), "PMIx");
  assert_string_equal(found.job_id.c_str(), "n");
  job.local_size = 2;
  const Launch wide = launch(kPmix, {}, ask);
  assert_way(wide, MeetingWay::kTcp, {"local_world_size is 2"});
  assert_string_equal(wide.told_through.c_str(), "PMIx");
  job.local_size = -1;
  job.hosts = 2;
  assert_way(launch(kPmix, {}, ask), MeetingWay::kTcp, {"hosts is 2"});
}

// A process that has RANK and WORLD_SIZE does not wait for a PMIx server, unless the user names PMIx.
void test_pmix_is_asked_only_where_it_counts(void**) {
  int asked = 0;
  const AskPmix ask = [&] { return ++asked, PmixJob{}; };
  Variables both = kPmix;
  both["RANK"] = "0";
  both["WORLD_SIZE"] = "1";
  launch(both, {}, ask);
  assert_int_equal(asked, 0);
  LaunchOptions options;
  options.init_method = "pmix://";
  assert_string_equal(launch(both, options, ask).source.c_str(), "PMIx");
  assert_int_equal(asked, 1);
  assert_refused(refusal({}, options), DSC_ERR_CONFIG, {"PMIX_NAMESPACE is not set"});
  options.sources = DSC_SOURCE_ENV;
  assert_refused(refusal(both, options), DSC_ERR_INVALID_ARG, {"pmix://", "excludes DSC_SOURCE_PMIX"});
}

void test_half_set_launchers(void**) {
  assert_refused(refusal({{"RANK", "0"}}), DSC_ERR_CONFIG, {"RANK is set, but WORLD_SIZE is not"});
  assert_refused(refusal({{"WORLD_SIZE", "2"}, {"RANK", ""}}), DSC_ERR_CONFIG,
                 {"WORLD_SIZE is set, but RANK is not"});
  assert_refused(refusal({{"OMPI_COMM_WORLD_RANK", "3"}}), DSC_ERR_CONFIG, {"OMPI_COMM_WORLD_SIZE is not"});
  assert_refused(refusal({{"OMPI_COMM_WORLD_SIZE", "3"}}), DSC_ERR_CONFIG, {"OMPI_COMM_WORLD_RANK is not"});
  // A leftover variable of one launcher does not prevent the use of another launcher.
  assert_launch(launch({{"OMPI_COMM_WORLD_RANK", "3"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}), 0, 2, -1, -1);
}

void test_numbers_that_are_none(void**) {
  for (const char* bad : {"two", "1.5", " 1", "1 ", "0x2", "99999999999", "-"}) {
    assert_refused(refusal({{"RANK", bad}, {"WORLD_SIZE", "4"}}), DSC_ERR_CONFIG,
                   {"RANK is '", bad, "whole number"});
  }
  assert_refused(refusal({{"RANK", "0"}, {"WORLD_SIZE", "0"}}), DSC_ERR_CONFIG,
                 {"WORLD_SIZE is 0", "1 or more"});
  for (const char* bad : {"0", "65536", "-1", "http"})
    assert_refused(refusal({{"MASTER_PORT", bad}}), DSC_ERR_CONFIG, {"MASTER_PORT is '", bad, "1 to 65535"});
}

void test_contradictions_inside_one_launcher(void**) {
  Variables variables = kTorchrun;
  variables["LOCAL_RANK"] = "4";
  assert_refused(refusal(variables), DSC_ERR_CONFIG, {"LOCAL_RANK is 4", "0 to 3", "LOCAL_WORLD_SIZE is 4"});
  variables["LOCAL_RANK"] = "-1";
  assert_refused(refusal(variables), DSC_ERR_CONFIG, {"LOCAL_RANK is -1"});
  variables["LOCAL_RANK"] = "0";
  variables["LOCAL_WORLD_SIZE"] = "5";
  assert_refused(refusal(variables), DSC_ERR_CONFIG, {"LOCAL_WORLD_SIZE is 5", "WORLD_SIZE (4)"});
  variables.erase("LOCAL_WORLD_SIZE");
  variables["MASTER_ADDR"] = "here";
  variables["LOCAL_RANK"] = "4";
  assert_refused(refusal(variables), DSC_ERR_CONFIG, {"LOCAL_RANK is 4", "WORLD_SIZE is 4"});
  assert_refused(refusal({{"RANK", "1"}, {"WORLD_SIZE", "1"}}), DSC_ERR_CONFIG,
                 {"RANK is 1", "WORLD_SIZE is 1"});
}

void test_rank_outside_a_larger_world_is_left_to_the_meeting(void**) {
  assert_launch(launch({{"RANK", "7"}, {"WORLD_SIZE", "4"}}), 7, 4, -1, -1);
}

void test_several_hosts(void**) {
  Variables variables = kTorchrun;
  variables["LOCAL_WORLD_SIZE"] = "3";
  assert_way(launch(variables), MeetingWay::kTcp, {"LOCAL_WORLD_SIZE is 3", "WORLD_SIZE is 4"});
  variables.erase("LOCAL_WORLD_SIZE");
  assert_way(launch(variables), MeetingWay::kTcp, {"node7.cluster is that of another host"});
  assert_refused(
      refusal({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_NNODES", "2"}, {"SLURM_STEP_ID", "0"}}),
      DSC_ERR_CONFIG, {"SLURM_NNODES is 2", "set MASTER_ADDR"});
}

// In this test no variable gives the number of hosts.
void test_the_address_says_how_ranks_meet(void**) {
  Variables variables = {{"RANK", "1"}, {"WORLD_SIZE", "2"}};
  assert_way(launch(variables), MeetingWay::kOneHost, {"127.0.0.1 is loopback"});
  variables["MASTER_ADDR"] = "here";
  assert_way(launch(variables), MeetingWay::kOneHost, {"here is that of this host"});
  for (const char* token : {"DSC_TOKEN_FD", "DSC_TOKEN_FILE", "DSC_TOKEN"}) {
    Variables with = variables;
    with[token] = "1";
    assert_way(launch(with), MeetingWay::kTcp, {"there is a token"});
  }
  LaunchOptions options;
  options.has_token = true;
  assert_way(launch(variables, options), MeetingWay::kTcp, {"there is a token"});
  variables["DSC_ALLOW_UNAUTHENTICATED"] = "1";
  assert_way(launch(variables), MeetingWay::kTcp, {"there is a token"});
  variables["LOCAL_WORLD_SIZE"] = "2";
  assert_way(launch(variables), MeetingWay::kOneHost, {"LOCAL_WORLD_SIZE is 2"});
  assert_way(launch({}), MeetingWay::kNobody, {});
}

void test_what_carries_the_address_of_the_store(void**) {
  Variables variables = kTorchrun;
  variables["LOCAL_WORLD_SIZE"] = "3";
  assert_string_equal(launch(variables).told_through.c_str(), "");
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  assert_string_equal(launch(variables).told_through.c_str(), "the store of torchrun's agent");
  variables["DSC_PORT"] = "29501";
  const Launch found = launch(variables);
  assert_int_equal(found.master_port, 29501);
  assert_string_equal(found.master_port_from.c_str(), "DSC_PORT");
  assert_string_equal(found.told_through.c_str(), "");
  LaunchOptions options;
  options.init_method = "file:///somewhere";
  assert_string_equal(launch(variables, options).told_through.c_str(), "/somewhere");
  options.has_store = true;
  assert_string_equal(launch(variables, options).told_through.c_str(), "the given store");
  // There is no address, but a launcher that can distribute one.
  const Launch no_address = launch({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "1"}}, options);
  assert_way(no_address, MeetingWay::kTcp, {"LOCAL_WORLD_SIZE is 1"});
}

void test_job_id_and_port_options(void**) {
  Variables variables = kTorchrun;
  assert_string_equal(launch(variables).job_id.c_str(), "run.3");
  variables["DSC_JOB_ID"] = "mine";
  assert_string_equal(launch(variables).job_id.c_str(), "mine");
  LaunchOptions options;
  options.job_id = "option";
  options.port = 4000;
  assert_string_equal(launch(variables, options).job_id.c_str(), "option");
  assert_int_equal(launch(variables, options).master_port, 4000);
  options.init_method = "tcp://localhost:4000";
  assert_string_equal(launch(variables, options).master_addr.c_str(), "127.0.0.1");
  options.init_method = "tcp://localhost:4001";
  assert_refused(refusal(variables, options), DSC_ERR_INVALID_ARG, {"4000", "4001"});
}

void test_options_are_checked(void**) {
  const auto with = [](auto member, int32_t value) {
    LaunchOptions options;
    options.*member = value;
    return options;
  };
  assert_refused(refusal({}, with(&LaunchOptions::rank, 0)), DSC_ERR_CONFIG,
                 {"rank is given without options->"});
  assert_refused(refusal({}, with(&LaunchOptions::world_size, 2)), DSC_ERR_CONFIG,
                 {"world_size is given without"});
  assert_refused(refusal({}, with(&LaunchOptions::rank, -2)), DSC_ERR_INVALID_ARG, {"rank is -2"});
  assert_refused(refusal({}, with(&LaunchOptions::world_size, 0)), DSC_ERR_INVALID_ARG, {"world_size is 0"});
  assert_refused(refusal({}, with(&LaunchOptions::local_rank, -5)), DSC_ERR_INVALID_ARG,
                 {"local_rank is -5"});
  assert_refused(refusal({}, with(&LaunchOptions::port, 70000)), DSC_ERR_INVALID_ARG, {"port is 70000"});
  assert_refused(refusal({}, with(&LaunchOptions::local_rank, 1)), DSC_ERR_CONFIG, {"local_rank is 1"});
}

Outcome refused_method(const char* text) {
  try {
    parse_init_method(text);
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {};
}

void test_init_method(void**) {
  assert_false(parse_init_method(nullptr).has_value());
  assert_false(parse_init_method("env://").has_value());
  const auto plain = parse_init_method("tcp://node:29500");
  assert_string_equal(plain->host.c_str(), "node");
  assert_int_equal(plain->port, 29500);
  const auto six = parse_init_method("tcp://[::1]:1");
  assert_string_equal(six->host.c_str(), "::1");
  assert_false(parse_init_method("pmix://").has_value());
  assert_false(parse_init_method("file:///shared/x").has_value());
  for (const char* bad : {"", "tcp", "tcp://", "tcp://host", "tcp://:1", "tcp://host:0", "tcp://host:65536",
                          "tcp://h:1x", "tcp://::1:5", "tcp://[]:5", "tcp://h:1?rank=0", "env://x",
                          "http://h:1", "file://", "file:///", "file://x"})
    assert_refused(refused_method(bad), DSC_ERR_INVALID_ARG, {bad, "env://", "tcp://HOST:PORT"});
}

AddressLocation location_of(const char* address) { return locate_address(address, Deadline::after_ms(1000)); }

Outcome refused_address(const char* address, int64_t timeout_ms) {
  try {
    locate_address(address, Deadline::after_ms(timeout_ms));
    return {};
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
}

void test_local_addresses(void**) {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  for (const char* own : {"localhost", "LocalHost", "127.0.0.1", "127.8.9.10", "::1"})
    assert_true(location_of(own) == AddressLocation::kLoopback);
  assert_true(location_of(name) == AddressLocation::kThisHost);
  assert_true(location_of("192.0.2.1") == AddressLocation::kElsewhere);  // a range reserved for documentation
  const std::string mine = own_address("", Deadline::after_ms(1000));
  assert_true(mine == "127.0.0.1" || location_of(mine.c_str()) == AddressLocation::kThisHost);
  assert_string_equal(own_address("lo", Deadline::after_ms(1000)).c_str(), "127.0.0.1");
  assert_string_equal(own_address("127.8.9.10", Deadline::after_ms(1000)).c_str(), "127.8.9.10");
}

void test_unresolvable_address_is_an_error_in_time(void**) {
  const int64_t start_ns = now_ns();
  const Outcome outcome = refused_address("no-such-host.invalid", 1000);
  assert_true(now_ns() - start_ns < 3 * kNsPerSecond);
  // The error code depends on whether a name server answers.
  assert_true(outcome.code == DSC_ERR_CONFIG || outcome.code == DSC_ERR_TIMEOUT);
  assert_true(says(outcome.text, "no-such-host.invalid"));
}

void test_host_identity(void**) {
  const std::string own = host_identity(lookup({}));
  assert_true(own.size() > 37 && own.size() <= kHostIdentityBytes);
  assert_string_equal(own.c_str(), host_identity(lookup({})).c_str());
  assert_string_equal(host_identity(lookup({{"DSC_HOST_ID", "a"}})).c_str(), "a");
  Outcome outcome;
  try {
    host_identity(lookup({{"DSC_HOST_ID", std::string(64, 'x')}}));
  } catch (const Error& error) {
    outcome = {error.code(), error.what()};
  }
  assert_refused(outcome, DSC_ERR_CONFIG, {"DSC_HOST_ID has 64", "63"});
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_nothing_set_is_one_process),
      cmocka_unit_test(test_torchrun),
      cmocka_unit_test(test_rank_and_size_are_enough_on_one_host),
      cmocka_unit_test(test_table_of_launchers),
      cmocka_unit_test(test_every_row_comes_in_its_order),
      cmocka_unit_test(test_variables_that_must_agree),
      cmocka_unit_test(test_a_slurm_step_smaller_than_its_job),
      cmocka_unit_test(test_precedence_decides_across_launchers),
      cmocka_unit_test(test_batch_script_is_not_a_step),
      cmocka_unit_test(test_sources_mask),
      cmocka_unit_test(test_pmix_alone_without_its_library),
      cmocka_unit_test(test_pmix_is_asked),
      cmocka_unit_test(test_pmix_is_asked_only_where_it_counts),
      cmocka_unit_test(test_half_set_launchers),
      cmocka_unit_test(test_numbers_that_are_none),
      cmocka_unit_test(test_contradictions_inside_one_launcher),
      cmocka_unit_test(test_rank_outside_a_larger_world_is_left_to_the_meeting),
      cmocka_unit_test(test_several_hosts),
      cmocka_unit_test(test_the_address_says_how_ranks_meet),
      cmocka_unit_test(test_what_carries_the_address_of_the_store),
      cmocka_unit_test(test_job_id_and_port_options),
      cmocka_unit_test(test_options_are_checked),
      cmocka_unit_test(test_init_method),
      cmocka_unit_test(test_local_addresses),
      cmocka_unit_test(test_unresolvable_address_is_an_error_in_time),
      cmocka_unit_test(test_host_identity),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
