// Meshes: properties of random meshes compared with plain counting, what is derived from groups, and error
// messages.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <set>

#include "mesh_support.hpp"
#include "repetitions.h"

namespace {

// ---- any mesh ----

struct Made {
  Axes axes;
  std::vector<size_t> order;  // fastest axis first
  std::string text;           // the order as a text; if empty, the last axis is the fastest
  int32_t first_rank = 0;
  int32_t size = 1;
};

Made any_mesh(std::mt19937& random) {
  Made made;
  const size_t n = 1 + random() % 6;
  for (size_t axis = 0; axis < n; ++axis) {
    made.axes.emplace_back("axis_" + std::to_string(axis), 1 + static_cast<int32_t>(random() % 5));
    made.size *= made.axes[axis].second;
    made.order.push_back(n - 1 - axis);
  }
  made.first_rank = random() % 3 == 0 ? static_cast<int32_t>(random() % 100) : 0;
  if (random() % 2 == 0) return made;
  std::shuffle(made.order.begin(), made.order.end(), random);
  for (const size_t axis : made.order) (made.text += made.text.empty() ? "" : "-") += made.axes[axis].first;
  return made;
}

// The coordinates of all ranks, found by counting.
std::vector<Ranks> counted(const Made& made) {
  std::vector<Ranks> all;
  Ranks now(made.axes.size(), 0);
  for (int32_t rank = 0; rank < made.size; ++rank) {
    all.push_back(now);
    for (const size_t axis : made.order) {
      if (++now[axis] < made.axes[axis].second) break;
      now[axis] = 0;
    }
  }
  return all;
}

// Returns all groups, each as the list of its ranks. A group is appended when its first rank is found.
Lists gathered(const Made& made, const std::vector<Ranks>& coords, const std::vector<bool>& inside) {
  Lists lists;
  std::vector<Ranks> keys;
  for (int32_t rank = 0; rank < made.size; ++rank) {
    Ranks key = coords[static_cast<size_t>(rank)];
    for (size_t axis = 0; axis < key.size(); ++axis)
      if (inside[axis]) key[axis] = 0;
    const auto at = std::ranges::find(keys, key) - keys.begin();
    if (at == static_cast<std::ptrdiff_t>(keys.size())) {
      keys.push_back(key);
      lists.emplace_back();
    }
    lists[static_cast<size_t>(at)].push_back(rank + made.first_rank);
  }
  return lists;
}

void check_partition(const Made& made, const Lists& lists) {
  std::set<int32_t> seen;
  for (const Ranks& list : lists) {
    assert_int_equal(list.size(), lists[0].size());
    assert_true(std::ranges::is_sorted(list));
    for (const int32_t rank : list) assert_true(seen.insert(rank).second);
  }
  assert_int_equal(seen.size(), made.size);
  assert_true(*seen.begin() == made.first_rank && *seen.rbegin() == made.first_rank + made.size - 1);
}

void check_groups(const TestMesh& mesh, const Made& made, const std::vector<Ranks>& coords,
                  std::mt19937& random) {
  std::vector<bool> inside(made.axes.size());
  std::vector<std::string> names;
  for (size_t axis = 0; axis < inside.size(); ++axis)
    if ((inside[axis] = random() % 2 == 0)) names.push_back(made.axes[axis].first);
  if (names.empty()) return;
  std::shuffle(names.begin(), names.end(), random);
  std::string text;
  for (const std::string& name : names) (text += text.empty() ? "" : "-") += name;
  const Lists lists = mesh.groups(text);
  assert_true(lists == gathered(made, coords, inside));
  check_partition(made, lists);
  const int32_t rank = made.first_rank + static_cast<int32_t>(random() % static_cast<uint32_t>(made.size));
  size_t number = 99, member = 99;
  const Ranks own = mesh.group(rank, text, &number, &member);
  assert_true(own == lists.at(number));
  assert_int_equal(lists[number].at(member), rank);
}

void check_ranks(const TestMesh& mesh, const Made& made, const std::vector<Ranks>& coords) {
  for (int32_t at = 0; at < made.size; ++at) {
    const int32_t rank = at + made.first_rank;
    assert_true(mesh.coord(rank, made.axes.size()) == coords[static_cast<size_t>(at)]);
    assert_int_equal(mesh.rank(coords[static_cast<size_t>(at)]), rank);
  }
}

void check_ring(const TestMesh& mesh, const Made& made, std::mt19937& random) {
  const auto& [name, size] = made.axes[random() % made.axes.size()];
  const int32_t rank = made.first_rank + static_cast<int32_t>(random() % static_cast<uint32_t>(made.size));
  Ranks ring;
  for (int32_t at = rank, step = 0; step < size; ++step, at = mesh.neighbor(at, name.c_str(), 1))
    ring.push_back(at);
  assert_int_equal(mesh.neighbor(ring.back(), name.c_str(), 1), rank);
  assert_int_equal(mesh.neighbor(rank, name.c_str(), -1), ring.back());
  assert_int_equal(mesh.neighbor(rank, name.c_str(), INT32_MIN),
                   ring[static_cast<size_t>((INT32_MIN % size + size) % size)]);
  std::ranges::sort(ring);
  assert_true(ring == mesh.group(rank, name));
  for (int32_t coord = 0; coord < size; ++coord) {
    assert_int_equal(mesh.peer(rank, name.c_str(), coord), ring[static_cast<size_t>(coord)]);
    assert_int_equal(mesh.peer(rank, name.c_str(), coord - size), ring[static_cast<size_t>(coord)]);
  }
}

void meshes_count_as_plain_counting_does(void** state) {
  (void)state;
  std::mt19937 random(20);
  const int rounds = test_repetitions(400, 40);
  for (int round = 0; round < rounds; ++round) {
    const Made made = any_mesh(random);
    const TestMesh mesh(made.axes, made.text.empty() ? nullptr : made.text.c_str(), made.size,
                        made.first_rank);
    assert_int_equal(mesh.size(), made.size);
    const std::vector<Ranks> coords = counted(made);
    check_ranks(mesh, made, coords);
    for (int i = 0; i < 4; ++i) check_groups(mesh, made, coords, random);
    check_ring(mesh, made, random);
  }
}

// ---- what is made of groups ----

void levels_of_a_group_partition_it(void** state) {
  (void)state;
  const TestMesh mesh({{"dp", 16}}, "dp");
  const Ranks sizes{2, 2, 4};
  assert_true(mesh.levels("dp", sizes, 0) ==
              (Lists{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}}));
  assert_true(mesh.levels("dp", sizes, 1) ==
              (Lists{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  assert_true(mesh.levels("dp", sizes, 2) ==
              (Lists{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}));
  const TestMesh two({{"tp", 2}, {"cp", 4}}, "tp-cp");
  assert_true(two.levels("cp", {2, 2}, 0) == (Lists{{0, 2}, {4, 6}, {1, 3}, {5, 7}}));
  assert_true(two.levels("cp", {2, 2}, 1) == (Lists{{0, 4}, {2, 6}, {1, 5}, {3, 7}}));
}

void embedding_groups_are_the_ends_of_pipelines(void** state) {
  (void)state;
  const TestMesh mesh({{"tp", 2}, {"pp", 3}}, "tp-pp");
  assert_true(mesh.members("pp", {0, -1}) == (Lists{{0, 4}, {1, 5}}));
  assert_true(mesh.members("pp", {0}) == (Lists{{0}, {1}}));
  assert_true(mesh.members("pp", {-1, 1, 2}) == (Lists{{4, 2}, {5, 3}}));
  const TestMesh flat({{"tp", 2}, {"pp", 1}}, "tp-pp");
  assert_true(flat.members("pp", {0, -1}) == (Lists{{0}, {1}}));
}

void names_of_ranks_are_deepspeeds(void** state) {
  (void)state;
  const TestMesh mesh({{"a", 2}, {"b", 2}});
  assert_string_equal(mesh.name(3, nullptr, "+").c_str(), "a+01-b+01");
  assert_string_equal(mesh.name(3, nullptr, "🤗", "_JEFF_").c_str(), "a🤗01_JEFF_b🤗01");
  assert_string_equal(mesh.name(2, "b-pipe").c_str(), "a_01");
  assert_string_equal(mesh.name(2, "a-b").c_str(), "");
  const TestMesh large({{"a", 200}});
  assert_string_equal(large.name(123, nullptr).c_str(), "a_123");
}

void experts_keep_the_pipeline(void** state) {
  (void)state;
  const TestMesh dense({{"tp", 4}, {"cp", 2}, {"ep", 1}, {"dp", -1}, {"pp", 2}}, "tp-cp-ep-dp-pp", 32);
  const TestMesh experts(dense, 4, 1);
  assert_string_equal(experts.order().c_str(), "tp-cp-ep-dp-pp");
  assert_true(experts.size("tp") == 1 && experts.size("cp") == 1 && experts.size("ep") == 4 &&
              experts.size("dp") == 4 && experts.size("pp") == 2);
  assert_true(experts.groups("pp") == dense.groups("pp"));
}

// ---- examples of Megatron-LM's tests ----

void groups_of_its_documents(void** state) {
  (void)state;
  const TestMesh mesh({{"tp", 2}, {"cp", 1}, {"ep", 1}, {"dp", 2}, {"pp", 4}}, "tp-cp-ep-dp-pp", 16);
  assert_true(mesh.groups("dp") ==
              (Lists{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  assert_true(mesh.groups("pp") == (Lists{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}));
  const TestMesh cp({{"tp", 4}, {"cp", 2}}, "tp-cp");
  assert_true(cp.groups("cp") == (Lists{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  const TestMesh inner({{"tp", 2}, {"dp", 3}, {"pp", 4}}, "tp-dp-pp");
  const Lists dp = inner.groups("dp");
  assert_true(dp[0] == (Ranks{0, 2, 4}) && dp[1] == (Ranks{1, 3, 5}) && dp[7] == (Ranks{19, 21, 23}));
}

void ends_and_neighbours_of_pipelines(void** state) {
  (void)state;
  for (const char* order : {"tp-cp-ep-dp-pp", "tp-cp-pp-ep-dp"}) {
    const TestMesh mesh({{"tp", 2}, {"cp", 1}, {"ep", 1}, {"dp", 1}, {"pp", 4}}, order);
    for (int32_t rank = 0; rank < 8; ++rank) {
      assert_int_equal(mesh.peer(rank, "pp", 0), rank % 2);
      assert_int_equal(mesh.group(rank, "dp").front(), rank);
      assert_int_equal(mesh.neighbor(rank, "pp", 1), (rank + 2) % 8);
      assert_int_equal(mesh.neighbor(rank, "pp", -1), (rank + 6) % 8);
    }
  }
}

// The position of pp in the order does not matter if dp or pp is 1.
void orders_that_say_the_same(void** state) {
  (void)state;
  const int32_t same[][3] = {{1, 8, 1}, {2, 4, 1}, {4, 2, 1}, {8, 1, 1},
                             {4, 1, 2}, {1, 1, 8}, {1, 1, 2}, {2, 1, 4}};
  const int32_t different[][3] = {{1, 2, 1}, {1, 4, 1}, {2, 2, 1}, {1, 2, 2}};
  const auto made = [](const int32_t(&sizes)[3]) {
    return Axes{{"tp", sizes[0]}, {"pp", sizes[1]}, {"ep", sizes[2]}, {"dp", -1}};
  };
  for (const auto& sizes : same) {
    const TestMesh last(made(sizes), "tp-ep-dp-pp", 8), inner(made(sizes), "tp-pp-ep-dp", 8);
    for (const char* axes : {"tp", "dp", "pp", "tp-pp"}) assert_true(last.groups(axes) == inner.groups(axes));
  }
  for (const auto& sizes : different) {
    const TestMesh last(made(sizes), "tp-ep-dp-pp", 8), inner(made(sizes), "tp-pp-ep-dp", 8);
    assert_true(last.groups("tp") == inner.groups("tp"));
    for (const char* axes : {"dp", "pp", "tp-pp"}) assert_true(last.groups(axes) != inner.groups(axes));
  }
}

// In a plan, the hybrid and hierarchical groups follow the groups that they divide.
void plans_place_parts_behind_their_whole(void** state) {
  (void)state;
  const TestMesh mesh({{"cp", 4}, {"dp", 2}}, "cp-dp");
  const Ranks levels{2, 2};
  dsc_mesh_plan_options_t options = plan_options("megatron");
  options.cp_levels = levels.data();
  options.n_cp_levels = levels.size();
  options.hybrid = 1;
  const std::vector<TestMesh::NamedGroup> plan = mesh.plan(options);
  const auto from = [&](const char* name, size_t n) {
    const auto at = std::ranges::find(plan, name, &TestMesh::NamedGroup::first);
    assert_true(static_cast<size_t>(plan.end() - at) >= n);
    return std::vector<TestMesh::NamedGroup>(at, at + static_cast<std::ptrdiff_t>(n));
  };
  assert_true(from("dp_cp", 7) == (std::vector<TestMesh::NamedGroup>{{"dp_cp", {0, 1, 2, 3, 4, 5, 6, 7}},
                                                                     {"hybrid_dp_cp", {0, 1}},
                                                                     {"hybrid_dp_cp", {2, 3}},
                                                                     {"hybrid_dp_cp", {4, 5}},
                                                                     {"hybrid_dp_cp", {6, 7}},
                                                                     {"hybrid_dp_cp", {0, 1, 2, 3}},
                                                                     {"hybrid_dp_cp", {4, 5, 6, 7}}}));
  assert_true(from("cp", 6) == (std::vector<TestMesh::NamedGroup>{{"cp", {0, 1, 2, 3}},
                                                                  {"hcp", {0, 1}},
                                                                  {"hcp", {2, 3}},
                                                                  {"hcp", {0, 2}},
                                                                  {"hcp", {1, 3}},
                                                                  {"cp", {4, 5, 6, 7}}}));
}

// The groups of one rank are those groups of the whole plan that contain the rank, in the same order.
void plans_of_one_rank_are_parts_of_all(void** state) {
  (void)state;
  const TestMesh dense({{"tp", 2}, {"cp", 2}, {"ep", 1}, {"dp", 4}, {"pp", 2}}, "tp-cp-ep-dp-pp", 32, 5);
  const TestMesh experts(dense, 4, 1);
  dsc_mesh_plan_options_t options = plan_options("megatron");
  options.experts = experts.get();
  options.instances = 2;
  const std::vector<TestMesh::NamedGroup> all = dense.plan(options);
  for (options.rank = 5; options.rank < 37; ++options.rank) {
    std::vector<TestMesh::NamedGroup> own;
    for (const TestMesh::NamedGroup& group : all)
      if (std::ranges::find(group.second, options.rank) != group.second.end()) own.push_back(group);
    assert_true(dense.plan(options) == own);
  }
}

// The test allows seconds. The goal is milliseconds; see docs/mesh.md.
void a_hundred_thousand_ranks_take_no_time(void** state) {
  (void)state;
  const auto begin = std::chrono::steady_clock::now();
  const TestMesh dense({{"tp", 8}, {"cp", 1}, {"ep", 1}, {"dp", -1}, {"pp", 20}}, "tp-cp-ep-dp-pp", 100000);
  const TestMesh experts(dense, 5, 1);
  dsc_mesh_plan_options_t options = plan_options("megatron");
  options.experts = experts.get();
  options.rank = 54321;
  const std::vector<TestMesh::NamedGroup> own = dense.plan(options);
  const auto end = std::chrono::steady_clock::now();
  assert_int_equal(own.size(), 18);
  for (const auto& [name, ranks] : own)
    assert_true(std::ranges::binary_search(ranks, 54321) || name == "intra_dist_opt");
  assert_true(end - begin < std::chrono::seconds(10));
}

// ---- refusals ----

void refused(const Axes& axes, const char* order, int32_t world_size, const char* words,
             dsc_result_t code = DSC_ERR_INVALID_ARG) {
  dsc_mesh_t* mesh = nullptr;
  assert_int_equal(TestMesh::create(axes, order, world_size, 0, &mesh), code);
  assert_null(mesh);
  if (!std::strstr(dsc_last_error_message(), words))
    fail_msg("expected \"%s\" in: %s", words, dsc_last_error_message());
}

void wrong_meshes_are_refused_in_words(void** state) {
  (void)state;
  const Axes axes{{"tp", 2}, {"cp", 1}, {"dp", 4}, {"pp", 2}};
  refused(axes, "tp-cp-ddp-pp", 0,
          "order has \"ddp\", which is not an axis; did you mean \"dp\"? (known: tp, cp, dp, pp)");
  refused(axes, "tp-nothing", 0, "order has \"nothing\", which is not an axis (known: tp, cp, dp, pp)");
  refused(axes, "tp-dp", 0, "order leaves out the axis \"pp\" of size 2, expected only axes of size 1");
  refused(axes, "tp-dp-tp-pp", 0, "order has the axis \"tp\" twice, expected each axis at most once");
  refused(axes, "tp--dp-pp", 0, "order is \"tp--dp-pp\", expected names of axes, separated by '-'");
  refused(axes, "", 0, "order is \"\", expected names of axes");
  refused(axes, "tp-dp-pp", 8,
          "options->world_size is 8, expected 16, the product of the axis sizes (tp=2 cp=1 dp=4 pp=2)");
  refused({{"tp", 3}, {"dp", -1}}, "tp-dp", 8, "options->world_size is 8, expected a multiple of 3");
  refused({{"tp", 3}, {"dp", -1}}, "tp-dp", 0, "the axis \"dp\" has size -1, expected options->world_size");
  refused({{"tp", -1}, {"dp", -1}}, "tp-dp", 4, "more than one axis has size -1");
  refused({{"ep", 2}, {"cp", 2}}, "ep-cp", 0,
          "the axis ep has size 2 and cp has size 2, expected size 1 for one of the two");
  refused({{"tp", 0}}, nullptr, 0, "the axis \"tp\" has size 0, expected 1 or more");
  refused({{"tp", 2}, {"tp", 2}}, nullptr, 0, "names has the axis \"tp\" twice");
  refused({{"tp-dp", 2}}, nullptr, 0,
          "\"tp-dp\" cannot be the name of an axis, expected 1 to 31 letters, digits or '_'");
  refused({{"a", 65536}, {"b", 65536}}, nullptr, 0, "expected at most 2147483647 ranks", DSC_ERR_OVERFLOW);
  refused({{"a", 65536}, {"b", 65536}, {"c", INT32_MAX}, {"d", INT32_MAX}}, nullptr, 0, "is too large",
          DSC_ERR_OVERFLOW);
  refused(Axes(33, {"a", 1}), nullptr, 0, "n_axes is 33, expected 1 to 32");
}

void wrong_experts_are_refused_in_words(void** state) {
  (void)state;
  const auto said = [](const TestMesh& dense, int32_t ep, int32_t tp, const char* words) {
    dsc_mesh_t* experts = nullptr;
    assert_int_equal(dsc_mesh_create_experts(dense.get(), ep, tp, &experts), DSC_ERR_INVALID_ARG);
    if (!std::strstr(dsc_last_error_message(), words))
      fail_msg("expected \"%s\" in: %s", words, dsc_last_error_message());
  };
  const TestMesh dense({{"tp", 2}, {"ep", 1}, {"dp", 4}, {"pp", 2}}, "tp-ep-dp-pp");
  said(dense, 3, 0, "the mesh has 16 ranks, expected a multiple of expert_tp x ep x pp, which is 2 x 3 x 2");
  said(dense, INT32_MAX, INT32_MAX, "expected a multiple");
  said(dense, 0, 0, "ep is 0, expected 1 or more");
  const TestMesh no_ep({{"tp", 2}, {"dp", 4}}, "tp-dp");
  said(no_ep, 2, 0, "no axis \"ep\"");
  const TestMesh has_ep({{"tp", 2}, {"ep", 2}, {"dp", 4}}, "tp-ep-dp");
  said(has_ep, 2, 0, "the mesh of the dense layers has size 2 along \"ep\", expected 1");
  const TestMesh rows({{"pipe", 2}, {"data", 2}});
  said(rows, 1, 0, "the mesh of the dense layers has no order");
  const TestMesh inner({{"tp", 2}, {"pp", 2}, {"ep", 1}, {"dp", 4}}, "tp-pp-ep-dp");
  said(inner, 2, 1,
       "pp groups of dense layers and of experts differ: neighbors along pp are 2 ranks apart for dense "
       "layers "
       "and 1 ranks apart for experts");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(meshes_count_as_plain_counting_does),
      cmocka_unit_test(levels_of_a_group_partition_it),
      cmocka_unit_test(embedding_groups_are_the_ends_of_pipelines),
      cmocka_unit_test(names_of_ranks_are_deepspeeds),
      cmocka_unit_test(experts_keep_the_pipeline),
      cmocka_unit_test(groups_of_its_documents),
      cmocka_unit_test(ends_and_neighbours_of_pipelines),
      cmocka_unit_test(orders_that_say_the_same),
      cmocka_unit_test(plans_place_parts_behind_their_whole),
      cmocka_unit_test(plans_of_one_rank_are_parts_of_all),
      cmocka_unit_test(a_hundred_thousand_ranks_take_no_time),
      cmocka_unit_test(wrong_meshes_are_refused_in_words),
      cmocka_unit_test(wrong_experts_are_refused_in_words),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
