#include "topology/derived.hpp"

#include <algorithm>
#include <cstdio>

#include "base/error.hpp"
#include "topology/names.hpp"

namespace dsc {
namespace {

void check_level(size_t length, std::span<const int32_t> sizes, size_t level) {
  if (level >= sizes.size())
    fail(DSC_ERR_INVALID_ARG, "level is %zu, expected below the number of levels, which is %zu", level,
         sizes.size());
  size_t product = 1;
  std::string text;
  for (const int32_t size : sizes) {
    if (size < 1) fail(DSC_ERR_INVALID_ARG, "the size of a level is %d, expected 1 or more", size);
    // Stops multiplying once the product exceeds the length, so that it cannot overflow.
    if (product <= length) product *= static_cast<size_t>(size);
    text += (text.empty() ? "" : " x ") + std::to_string(size);
  }
  if (product != length)
    fail(DSC_ERR_INVALID_ARG,
         "the level sizes are %s, expected a product of %zu, the number of ranks of a group",
         shown_words(text).c_str(), length);
}

}  // namespace

std::vector<int32_t> RankLists::list(size_t index) const {
  std::vector<int32_t> ranks(size);
  for (size_t member = 0; member < size; ++member) ranks[member] = rank(index, member);
  return ranks;
}

RankLists lists_of(MeshGroups groups) {
  const auto count = static_cast<size_t>(groups.count()), size = static_cast<size_t>(groups.size());
  return {count, size, [groups = std::move(groups)](size_t list, size_t member) {
            return groups.rank(static_cast<int32_t>(list), static_cast<int32_t>(member));
          }};
}

RankLists level_lists(RankLists lists, std::span<const int32_t> sizes, size_t level) {
  check_level(lists.size, sizes, level);
  size_t inner = 1;
  for (size_t below = 0; below < level; ++below) inner *= static_cast<size_t>(sizes[below]);
  const auto side = static_cast<size_t>(sizes[level]);
  const size_t per_list = lists.size / side;
  return {lists.count * per_list, side,
          [lists = std::move(lists), inner, side, per_list](size_t list, size_t m) {
            const size_t part = list % per_list;
            const size_t first = part / inner * inner * side + part % inner;
            return lists.rank(list / per_list, first + m * inner);
          }};
}

RankLists picked_lists(RankLists lists, std::span<const int32_t> positions) {
  std::vector<size_t> picked;
  const auto length = static_cast<int64_t>(lists.size);
  for (const int32_t position : positions) {
    const int64_t at = position < 0 ? position + length : position;
    if (at < 0 || at >= length)
      fail(DSC_ERR_INVALID_ARG, "positions has %d, expected %lld to %lld: each group has %lld ranks",
           position, static_cast<long long>(-length), static_cast<long long>(length - 1),
           static_cast<long long>(length));
    const auto member = static_cast<size_t>(at);
    if (std::ranges::find(picked, member) == picked.end()) picked.push_back(member);
  }
  const size_t count = lists.count, size = picked.size();
  return {count, size, [lists = std::move(lists), picked = std::move(picked)](size_t list, size_t member) {
            return lists.rank(list, picked[member]);
          }};
}

std::vector<int32_t> hybrid_sizes(int32_t length) {
  if (length > 1 && length % 2 != 0)
    fail(DSC_ERR_INVALID_ARG,
         "options->hybrid is 1 and the groups of dp x cp have %d ranks, expected an even number", length);
  std::vector<int32_t> sizes;
  for (int32_t size = 2; size <= length / 2; size *= 2) {
    if (length % size != 0)
      fail(DSC_ERR_INVALID_ARG,
           "options->hybrid is 1 and the groups of dp x cp have %d ranks, expected a multiple of %d", length,
           size);
    sizes.push_back(size);
  }
  return sizes;
}

// ---- Experts ----

namespace {

int32_t size_of(const RankMesh& mesh, std::string_view name) {
  const MeshAxis* axis = mesh.find(name);
  return axis ? axis->size : 1;
}

// Throws INVALID_ARG if no mesh of experts can be made from this mesh.
void check_dense(const RankMesh& dense, int32_t ep) {
  if (!dense.has_order())
    fail(DSC_ERR_INVALID_ARG,
         "the mesh of the dense layers has no order, expected it to be created with an order such as "
         "\"tp-cp-ep-dp-pp\"");
  for (const MeshAxis& axis : dense.axes())
    if (axis.size > 1 && axis.name != "tp" && axis.name != "cp" && axis.name != "dp" && axis.name != "pp")
      fail(DSC_ERR_INVALID_ARG,
           "the mesh of the dense layers has size %d along \"%s\", expected 1: only tp, cp, dp and pp may be "
           "larger",
           axis.size, axis.name.c_str());
  if (ep > 1 && !dense.find("ep"))
    fail(DSC_ERR_INVALID_ARG,
         "the mesh of the dense layers has no axis \"ep\", expected this axis with size 1: its position in "
         "the order is needed");
}

}  // namespace

// The expert mesh has the axes of the dense mesh in the same order, with other sizes.
RankMesh expert_mesh(const RankMesh& dense, int32_t ep, int32_t expert_tp) {
  if (ep < 1) fail(DSC_ERR_INVALID_ARG, "ep is %d, expected 1 or more", ep);
  if (expert_tp < 0)
    fail(DSC_ERR_INVALID_ARG,
         "expert_tp is %d, expected 1 or more, or 0 for the size of tp in the dense layers", expert_tp);
  check_dense(dense, ep);
  const int32_t tp = expert_tp == 0 ? size_of(dense, "tp") : expert_tp;
  const int32_t pp = size_of(dense, "pp");
  const int64_t pairs = int64_t{tp} * ep;
  if (pairs > dense.size() || dense.size() % (pairs * pp) != 0)
    fail(DSC_ERR_INVALID_ARG,
         "the mesh has %d ranks, expected a multiple of expert_tp x ep x pp, which is %d x %d x %d",
         dense.size(), tp, ep, pp);
  const int64_t dp = dense.size() / (pairs * pp);
  MeshSettings settings;
  settings.first_rank = dense.first_rank();
  for (const size_t index : dense.order()) {
    const std::string& name = dense.axes()[index].name;
    const int64_t size = name == "tp" ? tp : name == "ep" ? ep : name == "pp" ? pp : name == "dp" ? dp : 1;
    settings.axes.push_back({name, static_cast<int32_t>(size)});
  }
  const std::string order = dense.order_text();
  settings.order = order.c_str();
  settings.world_size = dense.size();
  RankMesh experts(settings);
  if (pp > 1 && experts.stride(experts.axis("pp")) != dense.stride(dense.axis("pp")))
    fail(DSC_ERR_INVALID_ARG,
         "the pp groups of dense layers and of experts differ: neighbors along pp are %d ranks apart for "
         "dense layers and %d ranks apart for experts, expected the same; put pp last in the order",
         dense.stride(dense.axis("pp")), experts.stride(experts.axis("pp")));
  return experts;
}

// ---- Names ----

std::string rank_name(const RankMesh& mesh, int32_t rank, const NameStyle& style) {
  std::vector<std::string_view> omitted;
  if (!style.omit.empty()) omitted = split_tokens(style.omit, "omit");
  std::string text;
  for (size_t axis = 0; axis < mesh.axes().size(); ++axis) {
    const std::string& name = mesh.axes()[axis].name;
    if (std::ranges::find(omitted, name) != omitted.end()) continue;
    char number[16];
    std::snprintf(number, sizeof number, "%02d", mesh.coordinate(rank, axis));
    if (!text.empty()) text += style.outer;
    ((text += name) += style.inner) += number;
  }
  return text;
}

}  // namespace dsc
