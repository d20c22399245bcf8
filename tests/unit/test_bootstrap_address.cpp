// Where the ranks of a job meet: the variables of clouds and Slurm, DeepSpeed's recorded decisions, and the
// report of all findings.
#include <setjmp.h>

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "bootstrap/host_list.hpp"
#include "bootstrap/launch_report.hpp"
#include "bootstrap/launcher.hpp"
#include "json.hpp"

// Included last because it defines macros such as fail().
extern "C" {
#include <cmocka.h>
}

namespace {

using namespace dsc;
using support::Json;
using Values = std::map<std::string, std::string>;

PmixJob no_pmix() { throw Error(DSC_ERR_NO_BACKEND, "libpmix is not here"); }

LaunchFindings explain(const Values& values, const AskPmix& ask = no_pmix,
                       const LaunchOptions& options = {}) {
  const Environment environment = [values](const char* name) -> std::optional<std::string> {
    const auto found = values.find(name);
    if (found == values.end() || found->second.empty()) return std::nullopt;
    return found->second;
  };
  return explain_launch(
      options, environment, [](const std::string&) { return AddressLocation::kThisHost; }, ask);
}

void assert_address(const LaunchFindings& found, const char* host, int32_t port, const char* host_from) {
  if (!found.has_address) print_error("%s\n", found.error.c_str());
  assert_true(found.has_address);
  assert_string_equal(found.launch.master_addr.c_str(), host);
  assert_int_equal(found.launch.master_port, port);
  assert_string_equal(found.launch.master_addr_from.c_str(), host_from);
}

bool says(const std::string& text, const char* words) { return text.find(words) != std::string::npos; }

void assert_host(const std::optional<std::string>& came, const char* expected) {
  if (expected == nullptr) {
    if (came) print_error("nothing expected, came '%s'\n", came->c_str());
    assert_false(came.has_value());
  } else {
    assert_true(came.has_value());
    assert_string_equal(came->c_str(), expected);
  }
}

void test_slurm_lists(void**) {
  const struct {
    const char* list;
    const char* first;
  } cases[] = {{"node7", "node7"},
               {"node[1-3,7],gpu05", "node1"},
               {"node[003,7-9]", "node003"},
               {"gpu05,node[1-3]", "gpu05"},
               {"rack[1-2]n[01-16]", "rack1n01"},
               {"node[1-2]-ib.cluster,b", "node1-ib.cluster"},
               {"10.0.0.4", "10.0.0.4"},
               {"", nullptr},
               {",", nullptr},
               {"a,", nullptr},
               {"a,,b", nullptr},
               {"node[", nullptr},
               {"node[]", nullptr},
               {"node[1-]", nullptr},
               {"node[-1]", nullptr},
               {"node[1--2]", nullptr},
               {"node[1-2-3]", nullptr},
               {"node[1,]", nullptr},
               {"node[a]", nullptr},
               {"node1]", nullptr},
               {"a,node[", nullptr},
               {"a b", nullptr},
               {"a;rm", nullptr}};
  for (const auto& entry : cases) assert_host(first_slurm_host(entry.list), entry.first);
  assert_host(first_slurm_host(std::string(253, 'n')), std::string(253, 'n').c_str());
  assert_host(first_slurm_host(std::string(254, 'n')), nullptr);
  assert_host(first_slurm_host("n[" + std::string(1 << 20, '1') + "]"), nullptr);
}

void test_sagemaker_json(void**) {
  const struct {
    const char* json;
    const char* first;
  } cases[] = {
      {R"({"hosts":["algo-1","algo-2"]})", "algo-1"},
      {R"( { "hosts" : [ "algo-1" ] } )", "algo-1"},
      {R"({"current_host":"algo-2","hyperparameters":{"hosts":["no"],"a]":"}\"{"},"n":1.5,"l":[[{}],[]],"hosts":["algo-1"]})",
       "algo-1"},
      {R"({"x":null,"y":true,"hosts":["algo-1"]})", "algo-1"},
      {R"({})", nullptr},
      {R"({"hosts":[]})", nullptr},
      {R"({"hosts":"algo-1"})", nullptr},
      {R"({"hosts":["al go"]})", nullptr},
      {R"({"hosts":["a\n"]})", nullptr},
      {R"({"hosts")", nullptr},
      {R"({"hosts":["algo-1)", nullptr},
      {R"({"a":[)", nullptr},
      {R"({"a":"\)", nullptr},
      {R"({"a":1 "hosts":["b"]})", nullptr},
      {R"(["hosts"])", nullptr},
      {"1", nullptr},
      {"", nullptr}};
  for (const auto& entry : cases) assert_host(first_sagemaker_host(entry.json), entry.first);
  assert_host(first_sagemaker_host("{\"a\":" + std::string(1 << 20, '[')), nullptr);
}

void test_plain_hosts(void**) {
  assert_host(host_before_colon("10.0.0.4:6000"), "10.0.0.4");
  assert_host(host_before_colon("node"), "node");
  assert_host(host_before_colon(":6000"), nullptr);
  assert_host(plain_host("fe80::1"), "fe80::1");
  assert_host(plain_host("a b"), nullptr);
}

const Values kSlurm = {{"SLURM_PROCID", "1"},
                       {"SLURM_NTASKS", "2"},
                       {"SLURM_NNODES", "2"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_STEP_NODELIST", "node[1-2]"},
                       {"SLURM_LAUNCH_NODE_IPADDR", "10.9.9.9"}};

void test_slurm_says_where_the_first_rank_is(void**) {
  const LaunchFindings found = explain(kSlurm);
  assert_address(found, "node1", 29500, "SLURM_STEP_NODELIST");
  assert_int_equal(found.code, DSC_OK);
  assert_true(found.launch.way == MeetingWay::kTcp);
  Values values = kSlurm;
  values["MASTER_ADDR"] = "chosen";
  values["MASTER_PORT"] = "1234";
  assert_address(explain(values), "chosen", 1234, "MASTER_ADDR");
  values = kSlurm;
  values["SLURM_STEP_NODELIST"] = "node[1-";
  const LaunchFindings wrong = explain(values);
  assert_int_equal(wrong.code, DSC_ERR_CONFIG);
  assert_true(says(wrong.error, "SLURM_STEP_NODELIST is 'node[1-', expected a list of hosts"));
  assert_false(wrong.has_address);
}

void test_a_launcher_that_lost_says_nothing_of_the_address(void**) {
  Values values = kSlurm;
  values.insert({{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  assert_address(explain(values), "127.0.0.1", 29500, "default");
  LaunchOptions options;
  options.rank = 1;
  options.world_size = 2;
  assert_address(explain(kSlurm, no_pmix, options), "127.0.0.1", 29500, "default");
}

void test_pmix_takes_the_address_of_the_same_job_only(void**) {
  Values values = kSlurm;
  values["PMIX_NAMESPACE"] = "slurm.pmix.9.0";
  PmixJob job;
  job.rank = 1;
  job.size = 2;
  const AskPmix ask = [&] { return job; };
  assert_address(explain(values, ask), "node1", 29500, "SLURM_STEP_NODELIST");
  job.size = 4;  // as if mpirun ran inside the step
  assert_address(explain(values, ask), "127.0.0.1", 29500, "default");
}

void test_agent_store(void**) {
  Values values = {
      {"RANK", "0"},           {"WORLD_SIZE", "1"},      {"TORCHELASTIC_RUN_ID", "r"},
      {"MASTER_ADDR", "here"}, {"MASTER_PORT", "29400"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  assert_true(explain(values).launch.agent_store);
  LaunchOptions elsewhere;
  elsewhere.init_method = "tcp://here:1";
  assert_false(explain(values, no_pmix, elsewhere).launch.agent_store);
  values["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  assert_false(explain(values).launch.agent_store);
}

// ---- decisions of DeepSpeed's discovery ----

const char* vectors_path = nullptr;

Values values_of(const Json& object) {
  Values values;
  for (const auto& [name, value] : object.items()) values[name] = value.get<std::string>();
  return values;
}

// DeepSpeed overwrites a MASTER_PORT that is set. libdsc keeps it. Everything else must be equal.
void check_cloud(const Json& vector, const char* source) {
  Values values = values_of(vector["env"]);
  values["AZUREML_EXPERIMENT_ID"] = source == std::string("Azure ML") ? "x" : "";
  const LaunchFindings found = explain(values);
  if (vector.contains("error")) {
    assert_int_equal(found.code, DSC_ERR_CONFIG);
    assert_true(says(found.error, "OMPI_COMM_WORLD_RANK is not"));
    return;
  }
  Values expected = values;
  for (const auto& [name, value] : values_of(vector["env_changes"]))
    if (name != "MASTER_PORT" || !values.contains(name)) expected[name] = value;
  assert_string_equal(found.launch.source.c_str(), source);
  assert_int_equal(found.launch.rank, std::stoi(expected.at("RANK")));
  assert_int_equal(found.launch.world_size, std::stoi(expected.at("WORLD_SIZE")));
  assert_int_equal(found.launch.local_rank, std::stoi(expected.at("LOCAL_RANK")));
  assert_address(found, expected.at("MASTER_ADDR").c_str(), std::stoi(expected.at("MASTER_PORT")),
                 found.launch.master_addr_from.c_str());
}

// Checks which launcher is chosen. libdsc trusts RANK and WORLD_SIZE even without LOCAL_RANK.
void check_route(const Json& vector) {
  Values values = values_of(vector["env"]);
  const std::string branch = values.contains("RANK") ? "env" : vector["branch"].get<std::string>();
  values.insert({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}});
  const std::map<std::string, std::string> sources = {
      {"env", "environment"}, {"aml", "Azure ML"}, {"sagemaker", "SageMaker"}, {"mpi", "Open MPI"}};
  assert_string_equal(explain(values).launch.source.c_str(), sources.at(branch).c_str());
}

// The rank of one launcher is never combined with the size of another one.
void check_getters(const Json& vector) {
  const Values values = values_of(vector["env"]);
  const LaunchFindings found = explain(values);
  if (values.contains("RANK") && !values.contains("WORLD_SIZE")) {
    assert_int_equal(found.code, DSC_ERR_CONFIG);
    return;
  }
  assert_int_equal(found.launch.rank, vector["rank"].get<int>());
  assert_int_equal(found.launch.world_size, vector["world_size"].get<int>());
  assert_int_equal(found.launch.local_rank, vector["local_rank"].get<int>());
}

void test_deepspeed_vectors(void**) {
  std::ifstream file(vectors_path);
  int count = 0;
  for (std::string line; std::getline(file, line); ++count) {
    const Json vector = Json::parse(line);
    const std::string kind = vector.value("fn", "");
    if (kind == "aml") check_cloud(vector, "Azure ML");
    if (kind == "sagemaker") check_cloud(vector, "SageMaker");
    if (kind == "route") check_route(vector);
    if (kind == "launcher_getters") check_getters(vector);
  }
  assert_int_equal(count, 20);
}

// ---- the report ----

Json report(const LaunchFindings& findings) { return Json::parse(launch_report(findings)); }

Json source_of(const Json& report, const char* name) {
  for (const Json& source : report["sources"])
    if (source["name"] == name) return source;
  return nullptr;
}

void test_report_names_every_source(void**) {
  Values values = kSlurm;
  values.insert({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "2"}, {"PMI_RANK", "x"}});
  const Json found = report(explain(values));
  assert_int_equal(found["sources"].size(), 15);  // includes the options and the case of one process
  assert_true(found["error"].is_null());
  assert_true(source_of(found, "options")["state"] == "absent");
  assert_true(source_of(found, "torchrun")["why"] == "TORCHELASTIC_RUN_ID is not set");
  const Json chosen = source_of(found, "environment");
  assert_true(chosen["state"] == "chosen" && chosen["variables"]["WORLD_SIZE"] == "2");
  assert_true(chosen["variables"]["LOCAL_RANK"].is_null());
  const Json beaten = source_of(found, "Slurm");
  assert_true(beaten["state"] == "beaten" && beaten["why"] == "environment comes first");
  assert_true(beaten["variables"]["SLURM_STEP_NODELIST"] == "node[1-2]");
  const Json failed = source_of(found, "MPICH (Hydra)");
  assert_true(failed["state"] == "failed" && says(failed["why"], "PMI_RANK is 'x'"));
  assert_true(source_of(found, "one process")["state"] == "beaten");
  const Json start = found["start"];
  assert_true(start["source"] == "environment" && start["rank"] == 1 && start["world_size"] == 2);
  assert_true(start["master_addr"] == "127.0.0.1" && start["master_addr_from"] == "default");
  assert_true(start["meeting"] == "abstract unix socket" && start["job_id"].is_null());
}

void test_report_of_a_failure(void**) {
  const Json found = report(explain({{"RANK", "1"}}));
  assert_true(found["start"].is_null());
  assert_true(found["error"]["code"] == "DSC_ERR_CONFIG");
  assert_true(source_of(found, "environment")["why"] == "RANK is set, but WORLD_SIZE is not");
  assert_true(source_of(found, "one process")["why"] == "not reached");
  LaunchOptions options;
  options.port = -1;
  const Json refused = report(explain({}, no_pmix, options));
  assert_true(source_of(refused, "options")["state"] == "failed");
  assert_int_equal(refused["sources"].size(), 15);
}

void test_report_keeps_long_values_to_itself(void**) {
  const std::string settings = "{\"hosts\":[\"a\"],\"secret\":\"" + std::string(300, 's') + "\"}";
  const std::string text = launch_report(explain({{"SM_TRAINING_ENV", settings}}));
  assert_false(says(text, "sss"));
  assert_true(says(text, "characters)"));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  vectors_path = argv[1];
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_slurm_lists),
      cmocka_unit_test(test_sagemaker_json),
      cmocka_unit_test(test_plain_hosts),
      cmocka_unit_test(test_slurm_says_where_the_first_rank_is),
      cmocka_unit_test(test_a_launcher_that_lost_says_nothing_of_the_address),
      cmocka_unit_test(test_pmix_takes_the_address_of_the_same_job_only),
      cmocka_unit_test(test_agent_store),
      cmocka_unit_test(test_deepspeed_vectors),
      cmocka_unit_test(test_report_names_every_source),
      cmocka_unit_test(test_report_of_a_failure),
      cmocka_unit_test(test_report_keeps_long_values_to_itself),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
