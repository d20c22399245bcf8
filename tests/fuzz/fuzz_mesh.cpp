// Orders of meshes: a text is accepted exactly if the rules allow it, and ranks and groups then equal those
// of plain counting.
#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fuzz.hpp"
#include "topology/derived.hpp"
#include "topology/mesh.hpp"

namespace dsc::fuzz {
namespace {

constexpr int32_t kMostRanks = 512;  // more ranks test nothing new and take long

bool is_name(std::string_view text) {
  const std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  return !text.empty() && text.size() < 32 && text.find_first_not_of(letters) == std::string_view::npos;
}

// Returns the tokens if every token occurs once and is an axis, otherwise nothing.
std::optional<std::set<std::string_view>> tokens_of(std::string_view text,
                                                    const std::vector<MeshAxis>& axes) {
  std::set<std::string_view> tokens;
  for (std::string_view rest = text;;) {
    const size_t end = std::min(rest.find('-'), rest.size());
    const std::string_view token = rest.substr(0, end);
    const bool known = std::ranges::find(axes, token, &MeshAxis::name) != axes.end();
    if (!known || !tokens.insert(token).second) return std::nullopt;
    if (end == rest.size()) return tokens;
    rest.remove_prefix(end + 1);
  }
}

bool axes_are_right(const std::vector<MeshAxis>& axes) {
  std::set<std::string_view> names;
  int64_t ranks = 1;
  for (const MeshAxis& axis : axes) {
    if (!is_name(axis.name) || !names.insert(axis.name).second || axis.size < 1) return false;
    ranks *= axis.size;
  }
  return !axes.empty() && ranks <= kMostRanks;
}

bool order_is_right(const std::string& order, const std::vector<MeshAxis>& axes) {
  const auto tokens = tokens_of(order, axes);
  if (!tokens) return false;
  int large = 0;
  for (const MeshAxis& axis : axes) {
    if (axis.size > 1 && !tokens->contains(axis.name)) return false;
    if (axis.size > 1 && (axis.name == "ep" || axis.name == "cp")) ++large;
  }
  return large < 2;
}

template <typename Make>
auto accepted(Make&& make) -> std::optional<decltype(make())> {
  try {
    return make();
  } catch (const Error& error) {
    FUZZ_REQUIRE(error.code() == DSC_ERR_INVALID_ARG && *error.what() != '\0');
    return std::nullopt;
  }
}

// Counts through the coordinates in the order of the text.
void check_ranks(const RankMesh& mesh, const std::string& order) {
  FUZZ_REQUIRE(mesh.order_text().starts_with(order));
  std::vector<int32_t> now(mesh.axes().size(), 0);
  for (int32_t rank = 0; rank < mesh.size(); ++rank) {
    FUZZ_REQUIRE(mesh.rank(now) == rank);
    for (size_t axis = 0; axis < now.size(); ++axis) FUZZ_REQUIRE(mesh.coordinate(rank, axis) == now[axis]);
    for (Input words(order); !words.empty();) {
      const size_t axis = mesh.axis(words.until('-'));
      if (++now[axis] < mesh.axes()[axis].size) break;
      now[axis] = 0;
    }
  }
}

void check_groups(const RankMesh& mesh, std::string_view names) {
  const auto groups = accepted([&] { return mesh.groups(names); });
  const auto tokens = tokens_of(names, mesh.axes());
  FUZZ_REQUIRE(groups.has_value() == tokens.has_value());
  if (!groups) return;
  std::set<int32_t> seen;
  for (int32_t group = 0; group < groups->count(); ++group)
    for (int32_t member = 0; member < groups->size(); ++member) {
      const int32_t rank = groups->rank(group, member);
      FUZZ_REQUIRE(seen.insert(rank).second);
      const MeshPosition position = groups->position(rank);
      FUZZ_REQUIRE(position.group == group && position.member == member);
      FUZZ_REQUIRE(member == 0 || groups->rank(group, member - 1) < rank);
      for (size_t axis = 0; axis < mesh.axes().size(); ++axis)
        FUZZ_REQUIRE(tokens->contains(mesh.axes()[axis].name) ||
                     mesh.coordinate(rank, axis) == mesh.coordinate(groups->rank(group, 0), axis));
    }
  FUZZ_REQUIRE(static_cast<int32_t>(seen.size()) == mesh.size() && *seen.rbegin() == mesh.size() - 1);
}

void check_experts(const RankMesh& dense, int32_t ep, int32_t tp) {
  const auto experts = accepted([&] { return expert_mesh(dense, ep, tp); });
  if (!experts) return;
  FUZZ_REQUIRE(experts->size() == dense.size() && experts->order_text() == dense.order_text());
  if (!dense.find("pp")) return;
  const MeshGroups mine = experts->groups("pp"), theirs = dense.groups("pp");
  FUZZ_REQUIRE(mine.count() == theirs.count() && mine.size() == theirs.size());
  for (int32_t group = 0; group < mine.count(); ++group)
    for (int32_t stage = 0; stage < mine.size(); ++stage)
      FUZZ_REQUIRE(mine.rank(group, stage) == theirs.rank(group, stage));
}

}  // namespace

// The input has the order, the requested axes, ep and tp of experts, and the axes: each a name up to '=' and
// a byte for its size.
void fuzz_mesh(Bytes bytes) {
  Input input(bytes);
  const std::string order(input.until('\n'));
  const std::string_view names = input.until('\n');
  const auto ep = static_cast<int32_t>(input.below(9)), tp = static_cast<int32_t>(input.below(5));
  MeshSettings settings;
  while (!input.empty() && settings.axes.size() < 8) {
    std::string name(input.until('='));
    settings.axes.push_back({std::move(name), static_cast<int32_t>(input.below(6))});
  }
  if (order.find('\0') != std::string::npos) return;  // not a C string
  settings.order = order.c_str();
  int64_t ranks = 1;
  for (const MeshAxis& axis : settings.axes) ranks *= std::max(axis.size, 1);
  if (ranks > kMostRanks) return;
  const auto mesh = accepted([&] { return RankMesh(settings); });
  FUZZ_REQUIRE(mesh.has_value() == (axes_are_right(settings.axes) && order_is_right(order, settings.axes)));
  if (!mesh) return;
  check_ranks(*mesh, order);
  check_groups(*mesh, names);
  check_experts(*mesh, ep, tp);
}

}  // namespace dsc::fuzz
