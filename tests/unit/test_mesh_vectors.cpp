// Meshes through the public interface, compared with lists recorded from DeepSpeed and Megatron-LM.
#include <sodium.h>
#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include "json.hpp"
#include "mesh_support.hpp"

namespace {

using support::Json;

std::string vectors_folder;

// Calls `body` for every case of a file and returns the number of cases.
template <typename Body>
size_t for_each_case(const char* file_name, Body body) {
  std::ifstream file(vectors_folder + "/" + file_name);
  size_t cases = 0;
  for (std::string line; std::getline(file, line);) {
    const Json json = Json::parse(line);
    if (json.contains("_meta")) continue;
    body(json);
    ++cases;
  }
  return cases;
}

void same(const Json& got, const Json& expected, const std::string& of) {
  if (got == expected) return;
  fail_msg("%s: got %.300s, expected %.300s", of.c_str(), got.dump().c_str(), expected.dump().c_str());
}

Axes axes_of(const Json& names, const Json& sizes) {
  Axes axes;
  for (size_t i = 0; i < names.size(); ++i) axes.emplace_back(names[i], sizes[i]);
  return axes;
}

// ---- DeepSpeed ----

void check_axis(const TestMesh& mesh, const Json& row, size_t axis) {
  const std::string name = row["axes"][axis];
  same(mesh.groups(name), row["axis_comm_lists"][name], "axis_comm_lists " + name);
  Lists lists;
  for (int32_t at = 0; at < mesh.size(name); ++at) {
    Ranks any(row["axes"].size(), -1);
    any[axis] = at;
    lists.push_back(mesh.filter(any));
  }
  same(lists, row["axis_list"][name], "axis_list " + name);
}

void check_topology(const Json& row) {
  const Axes axes = axes_of(row["axes"], row["dims"]);
  const TestMesh mesh(axes);
  same(mesh.size(), row["world_size"], "world_size");
  for (size_t axis = 0; axis < axes.size(); ++axis) check_axis(mesh, row, axis);
  for (int32_t rank = 0; rank < mesh.size(); ++rank) {
    const auto at = static_cast<size_t>(rank);
    const Ranks coords = mesh.coord(rank, axes.size());
    same(coords, row["coords"][at], "coords");
    assert_int_equal(mesh.rank(coords), rank);
    same(mesh.name(rank, "data-pipe"), row["rank_repr_default"][at], "rank_repr_default");
    same(mesh.name(rank, nullptr), row["rank_repr_all"][at], "rank_repr_all");
  }
  for (const Json& match : row["filter_match"]) {
    Ranks coords(axes.size(), -1);
    for (size_t axis = 0; axis < axes.size(); ++axis) coords[axis] = match[0].value(axes[axis].first, -1);
    same(mesh.filter(coords), match[1], "filter_match");
  }
}

void topologies_are_deepspeeds(void** state) {
  (void)state;
  assert_true(for_each_case("ds_topology.jsonl", check_topology) > 20);
}

// Checks the plan of all groups, and the plan of one rank.
void check_creation(const TestMesh& mesh, const Json& row, int32_t rank) {
  dsc_mesh_plan_options_t options = plan_options("deepspeed");
  Lists created;
  for (const auto& [name, ranks] : mesh.plan(options)) created.push_back(ranks);
  same(created, row["new_group_call_order"], "new_group_call_order");
  options.rank = rank;
  std::map<std::string, Ranks> own;
  for (const auto& [name, ranks] : mesh.plan(options)) assert_true(own.emplace(name, ranks).second);
  same(own.at("dp"), row["dp_group"], "dp_group");
  same(own.at("pp"), row["pp_group"], "pp_group");
  same(own.at("ds_model"), row["ds_model_group"], "ds_model_group");
  same(own.at("slice"), row["slice_group"], "slice_group");
}

void check_grid(const Json& row) {
  const Axes axes = axes_of(row["axes"], row["dims"]);
  const TestMesh mesh(axes, nullptr, row["world"]);
  const int32_t rank = row["rank"];
  check_creation(mesh, row, rank);
  same(mesh.groups("data"), row["dp_groups"], "dp_groups");
  same(mesh.groups("pipe"), row["pipe_groups"], "pipe_groups");
  Lists pairs;
  for (int32_t r = 0; r < mesh.size(); ++r) pairs.push_back({r, mesh.neighbor(r, "pipe", 1)});
  same(pairs, row["p2p_groups"], "p2p_groups");
  same(mesh.peer(rank, "pipe", 0) == rank, row["is_first_stage"], "is_first_stage");
  same(mesh.peer(rank, "pipe", -1) == rank, row["is_last_stage"], "is_last_stage");
  Ranks stages;
  for (int32_t stage = 0; stage < mesh.size("pipe"); ++stage)
    stages.push_back(mesh.peer(rank, "pipe", stage));
  same(stages, row["stage_to_global"], "stage_to_global");
  const Ranks coords = mesh.coord(rank, axes.size());
  same(coords[0], row["stage_id"], "stage_id");
  same(coords[1], row["data_parallel_id"], "data_parallel_id");
  size_t member = 0;
  mesh.group(rank, axes.size() == 3 ? "pipe-model" : "pipe", nullptr, &member);
  same(member, row["ds_model_rank"], "ds_model_rank");
  same(axes.size() == 3 ? coords[2] : 0, row["slice_rank"], "slice_rank");
}

void grids_are_deepspeeds(void** state) {
  (void)state;
  assert_true(for_each_case("ds_grid.jsonl", check_grid) > 20);
}

// ---- Megatron-LM's rank generator ----

Axes generator_axes(const Json& row) {
  Axes axes;
  for (const char* name : {"tp", "ep", "dp", "pp", "cp"}) axes.emplace_back(name, row.value(name, 1));
  axes.emplace_back("gtp_remat", 1);
  return axes;
}

void check_generator(const Json& row) {
  const std::string order = row["order"];
  if (row.contains("error")) {
    dsc_mesh_t* mesh = nullptr;
    assert_int_equal(TestMesh::create(generator_axes(row), order.c_str(), 0, 0, &mesh), DSC_ERR_INVALID_ARG);
    assert_null(mesh);
    return;
  }
  const TestMesh mesh(generator_axes(row), order.c_str(), row["world_size"], row["rank_offset"]);
  // If the order omits several axes of size 1, their order among each other does not matter.
  std::set<std::string> names, expected;
  const auto tokens = [](std::string text, std::set<std::string>& set) {
    for (size_t at = 0; (at = text.find('-')) != std::string::npos; text.erase(0, at + 1))
      set.insert(text.substr(0, at));
    set.insert(text);
  };
  tokens(mesh.order(), names);
  tokens(row["resolved_order"], expected);
  assert_true(names == expected && mesh.order().starts_with(order));
  for (const auto& [axes, lists] : row["groups"].items())
    same(mesh.groups(axes), lists, row["order"].dump() + " " + axes);
}

void generated_ranks_are_megatrons(void** state) {
  (void)state;
  assert_true(for_each_case("mg_rankgen.jsonl", check_generator) > 50);
}

std::string sha256_of(const Lists& lists) {
  const std::string text = Json(lists).dump();
  unsigned char digest[crypto_hash_sha256_BYTES];
  crypto_hash_sha256(digest, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  char hex[2 * sizeof digest + 1];
  return sodium_bin2hex(hex, sizeof hex, digest, sizeof digest);
}

void check_hashes(const TestMesh& mesh, const Json& expected) {
  for (const auto& [axes, known] : expected.items()) {
    const Lists lists = mesh.groups(axes);
    same(lists.size(), known["n"], axes + " n");
    same(lists[0].size(), known["size"], axes + " size");
    same(sha256_of(lists), known["sha256"], axes + " sha256");
  }
}

void large_meshes_are_megatrons(void** state) {
  (void)state;
  const size_t cases = for_each_case("mg_rankgen_big.jsonl", [](const Json& row) {
    const int32_t world = row["world"];
    const TestMesh dense({{"tp", row["tp"]}, {"cp", row["cp"]}, {"ep", 1}, {"dp", -1}, {"pp", row["pp"]}},
                         "tp-cp-ep-dp-pp", world);
    same(dense.size("dp"), row["dp"], "dp");
    check_hashes(dense, row["decoder"]);
    const TestMesh experts({{"tp", row["tp"]}, {"ep", row["ep"]}, {"dp", -1}, {"pp", row["pp"]}},
                           "tp-ep-dp-pp", world);
    same(experts.size("dp"), row["expert_dp"], "expert_dp");
    check_hashes(experts, row["expert"]);
  });
  assert_true(cases > 15);
}

// ---- Megatron-LM's initialize_model_parallel() ----

// libdsc's names for the process groups of Megatron-LM.
const std::map<std::string, std::string>& plan_names() {
  static const std::map<std::string, std::string> names{
      {"GTP_WEIGHT_REMAT_GROUP", "gtp"},
      {"DATA_PARALLEL_GROUP_WITH_CP", "dp_cp"},
      {"INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP", "intra_dp_cp"},
      {"DATA_PARALLEL_GROUP", "dp"},
      {"CONTEXT_PARALLEL_GROUP", "cp"},
      {"MODEL_PARALLEL_GROUP", "mp"},
      {"TENSOR_MODEL_PARALLEL_GROUP", "tp"},
      {"PIPELINE_MODEL_PARALLEL_GROUP", "pp"},
      {"EMBEDDING_GROUP", "embd"},
      {"POSITION_EMBEDDING_GROUP", "pos_embd"},
      {"TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP", "tp_dp_cp"},
      {"TENSOR_AND_DATA_PARALLEL_GROUP", "tp_dp"},
      {"TENSOR_AND_CONTEXT_PARALLEL_GROUP", "tp_cp"},
      {"EXPERT_GTP_WEIGHT_REMAT_GROUP", "ep_gtp"},
      {"EXPERT_MODEL_PARALLEL_GROUP", "ep"},
      {"EXPERT_TENSOR_PARALLEL_GROUP", "ep_tp"},
      {"EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP", "tp_ep_mp"},
      {"EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP", "tp_ep_pp"},
      {"EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP_WITH_EGTP", "tp_ep_pp_gtp"},
      {"EXPERT_DATA_PARALLEL_GROUP", "ep_dp"},
      {"INTRA_PARTIAL_EXPERT_DATA_PARALLEL_GROUP", "intra_ep_dp"},
      {"HIERARCHICAL_EXPERT_DATA_PARALLEL_GROUP_L0", "intra_ep_dp"},
      {"HIERARCHICAL_EXPERT_DATA_PARALLEL_GROUP_L1", "inter_ep_dp"},
      {"INTER_PARTIAL_EXPERT_DATA_PARALLEL_GROUP", "inter_ep_dp"},
      {"INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP", "intra_dist_opt"},
  };
  return names;
}

const std::string& ours(const std::string& name) {
  const auto at = plan_names().find(name);
  if (at == plan_names().end()) fail_msg("no name for %s", name.c_str());
  return at->second;
}

// Megatron-LM has several names for some sets of ranks, but creates one group for them.
std::string of_variable(std::string name) {
  static const std::map<std::string, std::string> others{{"EMBEDDING", "embd"},
                                                         {"POSITION_EMBEDDING", "pos_embd"},
                                                         {"PIPELINE", "pp"},
                                                         {"DATA_PARALLEL", "dp"},
                                                         {"TENSOR_MODEL_PARALLEL", "tp"},
                                                         {"EXPERT_MODEL_PARALLEL", "ep"},
                                                         {"MODEL_PARALLEL", "mp"},
                                                         {"CONTEXT_PARALLEL", "cp"},
                                                         {"GTP_WEIGHT_REMAT", "gtp"},
                                                         {"EXPERT_GTP_WEIGHT_REMAT", "ep_gtp"}};
  name.erase(0, 1);  // '_'
  for (const char* ending : {"_GLOBAL_RANKS", "_RANKS"})
    if (name.ends_with(ending)) return others.at(name.substr(0, name.size() - std::string(ending).size()));
  // With gtp 1 the groups are the same as without gtp.
  const size_t gtp = name.find("_WITH_GTP_REMAT");
  if (gtp != std::string::npos) name.erase(gtp);
  return ours(name);
}

void check_members(const std::vector<TestMesh::NamedGroup>& own, const Json& known, int32_t rank) {
  std::map<std::string, Ranks> groups;
  for (const auto& [name, ranks] : own) assert_true(groups.emplace(name, ranks).second);
  for (const auto& [name, ranks] : known.items()) {
    const auto at = groups.find(of_variable(name));
    if (at != groups.end()) {
      same(at->second, ranks, name);
    } else if (name.find("INTRA_PARTIAL") != std::string::npos) {  // with one instance: the whole group
      same(groups.at(name.find("EXPERT") != std::string::npos ? "ep_dp" : "dp_cp"), ranks, name);
    } else {  // Megatron-LM gives embedding ranks also to ranks outside of the group
      assert_true(name.find("EMBEDDING") != std::string::npos);
      const Ranks told = ranks.is_null() ? Ranks() : ranks.get<Ranks>();
      assert_true(std::ranges::find(told, rank) == told.end());
    }
  }
}

struct State {
  int32_t tp, pp, cp, ep, expert_tp, instances, virtual_stages;
  std::string order;
};

State state_of(const Json& kwargs) {
  return {kwargs.value("tensor_model_parallel_size", 1),
          kwargs.value("pipeline_model_parallel_size", 1),
          kwargs.value("context_parallel_size", 1),
          kwargs.value("expert_model_parallel_size", 1),
          kwargs.value("expert_tensor_parallel_size", 0),
          kwargs.value("num_distributed_optimizer_instances", 1),
          kwargs.value("virtual_pipeline_model_parallel_size", 1),
          kwargs.value("order", "tp-cp-ep-dp-pp")};
}

Axes dense_axes(const State& state) {
  return {{"tp", state.tp}, {"cp", state.cp}, {"ep", 1}, {"dp", -1}, {"pp", state.pp}};
}

// One of the three functions called here must refuse the arguments.
void check_refusal(const Json& row) {
  const State state = state_of(row["kwargs"]);
  dsc_mesh_t *dense = nullptr, *experts = nullptr;
  dsc_result_t result = TestMesh::create(dense_axes(state), state.order.c_str(), row["world"], 0, &dense);
  if (result == DSC_OK) result = dsc_mesh_create_experts(dense, state.ep, state.expert_tp, &experts);
  if (result == DSC_OK) {
    dsc_mesh_plan_options_t options = plan_options("megatron");
    options.experts = experts;
    options.virtual_stages = state.virtual_stages;
    size_t n_groups = 0, n_ranks = 0;
    result = dsc_mesh_plan(dense, &options, nullptr, nullptr, 0, nullptr, 0, &n_groups, &n_ranks);
  }
  assert_int_equal(result, DSC_ERR_INVALID_ARG);
  dsc_mesh_destroy(dense);
  dsc_mesh_destroy(experts);
}

void check_state(const Json& row) {
  if (row.contains("error")) return check_refusal(row);
  const State state = state_of(row["kwargs"]);
  const TestMesh dense(dense_axes(state), state.order.c_str(), row["world"]);
  const TestMesh experts(dense, state.ep, state.expert_tp);
  dsc_mesh_plan_options_t options = plan_options("megatron");
  options.experts = experts.get();
  options.instances = state.instances;
  options.virtual_stages = state.virtual_stages;
  Json created = Json::array(), expected = Json::array();
  for (const auto& [name, ranks] : dense.plan(options)) created.push_back({name, ranks});
  for (const Json& call : row["new_group_calls"]) expected.push_back({ours(call[0]), call[1]});
  for (size_t at = 0; at < std::min(created.size(), expected.size()); ++at)
    same(created[at], expected[at], row["kwargs"].dump() + " group " + std::to_string(at));
  assert_int_equal(created.size(), expected.size());
  for (size_t rank = 0; rank < row["per_rank"].size(); ++rank) {
    options.rank = static_cast<int32_t>(rank);
    check_members(dense.plan(options), row["per_rank"][rank], options.rank);
  }
}

void groups_and_their_order_are_megatrons(void** state) {
  (void)state;
  assert_true(for_each_case("mg_parallel_state.jsonl", check_state) > 10);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || sodium_init() < 0) {
    print_error("usage: %s FOLDER_OF_THE_VECTORS\n", argv[0]);
    return 1;
  }
  vectors_folder = argv[1];
  const CMUnitTest tests[] = {
      cmocka_unit_test(topologies_are_deepspeeds),
      cmocka_unit_test(grids_are_deepspeeds),
      cmocka_unit_test(generated_ranks_are_megatrons),
      cmocka_unit_test(large_meshes_are_megatrons),
      cmocka_unit_test(groups_and_their_order_are_megatrons),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
