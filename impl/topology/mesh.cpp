#include "topology/mesh.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/joined.hpp"
#include "topology/names.hpp"

namespace dsc {
namespace {

constexpr int64_t kMostRanks = std::numeric_limits<int32_t>::max();

std::vector<std::string> names_of(const std::vector<MeshAxis>& axes) {
  std::vector<std::string> names;
  names.reserve(axes.size());
  for (const MeshAxis& axis : axes) names.push_back(axis.name);
  return names;
}

std::string sizes_text(const std::vector<MeshAxis>& axes) {
  return joined(axes, " ", [](const MeshAxis& axis) { return axis.name + "=" + std::to_string(axis.size); });
}

void check_axes(const std::vector<MeshAxis>& axes) {
  if (axes.empty() || axes.size() > kMostAxes)
    fail(DSC_ERR_INVALID_ARG, "there are %zu axes, expected 1 to %zu", axes.size(), kMostAxes);
  bool inferred = false;
  for (size_t i = 0; i < axes.size(); ++i) {
    const MeshAxis& axis = axes[i];
    check_axis_name(axis.name);
    for (size_t j = 0; j < i; ++j)
      if (axes[j].name == axis.name)
        fail(DSC_ERR_INVALID_ARG, "the axis \"%s\" occurs twice, expected each name once", axis.name.c_str());
    if (axis.size < 1 && axis.size != kInferredSize)
      fail(DSC_ERR_INVALID_ARG, "the axis \"%s\" has size %d, expected 1 or more, or -1 for the rest",
           axis.name.c_str(), axis.size);
    if (axis.size == kInferredSize && std::exchange(inferred, true))
      fail(DSC_ERR_INVALID_ARG, "more than one axis has size -1, expected at most one");
  }
}

// Returns the product of the sizes that were given.
int64_t product_of(const std::vector<MeshAxis>& axes) {
  int64_t product = 1;
  for (const MeshAxis& axis : axes)
    if (axis.size != kInferredSize && (product *= axis.size) > kMostRanks)
      fail(DSC_ERR_OVERFLOW, "the product of %s is too large: expected at most %lld ranks",
           shown_words(sizes_text(axes)).c_str(), static_cast<long long>(kMostRanks));
  return product;
}

}  // namespace

// ---- Groups ----

int32_t MeshGroups::offset(const std::vector<Digit>& digits, int32_t number) noexcept {
  int32_t sum = 0;
  for (const Digit& digit : digits) {
    sum += number % digit.size * digit.stride;
    number /= digit.size;
  }
  return sum;
}

int32_t MeshGroups::number(const std::vector<Digit>& digits, int32_t offset) noexcept {
  int32_t number = 0;
  int32_t weight = 1;
  for (const Digit& digit : digits) {
    number += offset / digit.stride % digit.size * weight;
    weight *= digit.size;
  }
  return number;
}

int32_t MeshGroups::rank(int32_t group, int32_t member) const noexcept {
  return first_rank_ + offset(outside_, group) + offset(inside_, member);
}

MeshPosition MeshGroups::position(int32_t rank) const noexcept {
  const int32_t own = rank - first_rank_;
  return {number(outside_, own), number(inside_, own)};
}

// ---- The mesh ----

RankMesh::RankMesh(const MeshSettings& settings) : first_rank_(settings.first_rank) {
  take_axes(settings);
  take_order(settings.order);
  strides_.resize(axes_.size());
  int32_t stride = 1;
  for (const size_t axis : order_) {
    strides_[axis] = stride;
    stride *= axes_[axis].size;
  }
}

// Computes the size of an axis given as -1 from the world size, and checks that the product of the sizes
// equals the world size.
void RankMesh::take_axes(const MeshSettings& settings) {
  axes_ = settings.axes;
  check_axes(axes_);
  const int64_t product = product_of(axes_);
  const int64_t world = settings.world_size;
  if (world < 0)
    fail(DSC_ERR_INVALID_ARG, "the world size is %lld, expected 1 or more, or 0 for the product",
         static_cast<long long>(world));
  const auto rest = std::ranges::find(axes_, kInferredSize, &MeshAxis::size);
  const std::string given = shown_words(sizes_text(axes_));
  if (rest != axes_.end()) {
    if (world == 0)
      fail(DSC_ERR_INVALID_ARG, "the axis \"%s\" has size -1, expected a world size to find it from",
           rest->name.c_str());
    if (world % product != 0)
      fail(DSC_ERR_INVALID_ARG, "the world size is %lld, expected a multiple of %lld: the axes are %s",
           static_cast<long long>(world), static_cast<long long>(product), given.c_str());
    rest->size = static_cast<int32_t>(world / product);
  } else if (world != 0 && world != product) {
    fail(DSC_ERR_INVALID_ARG, "the world size is %lld, expected the product of the axes, %lld: they are %s",
         static_cast<long long>(world), static_cast<long long>(product), given.c_str());
  }
  size_ = static_cast<int32_t>(rest != axes_.end() ? world : product);
  if (first_rank_ < 0) fail(DSC_ERR_INVALID_ARG, "the first rank is %d, expected 0 or more", first_rank_);
  if (int64_t{first_rank_} + size_ > kMostRanks)
    fail(DSC_ERR_OVERFLOW,
         "the first rank is %d and there are %d ranks: the last one is too large, expected at "
         "most %lld",
         first_rank_, size_, static_cast<long long>(kMostRanks - 1));
}

// Without a given order, the last axis is the fastest.
void RankMesh::take_order(const char* order) {
  if (!order) {
    for (size_t axis = axes_.size(); axis > 0; --axis) order_.push_back(axis - 1);
    return;
  }
  ordered_ = true;
  const std::vector<std::string> names = names_of(axes_);
  for (const std::string_view token : split_tokens(order, "order")) {
    const auto at = std::ranges::find(names, token);
    if (at == names.end())
      fail(DSC_ERR_INVALID_ARG, "order has \"%s\", which is not an axis%s", shown_words(token).c_str(),
           known_names(token, names).c_str());
    order_.push_back(static_cast<size_t>(at - names.begin()));
  }
  append_rest(names);
  const MeshAxis *ep = find("ep"), *cp = find("cp");
  if (ep && cp && ep->size > 1 && cp->size > 1)
    fail(
        DSC_ERR_INVALID_ARG,
        "ep is %d and cp is %d, expected at most one above 1 in a mesh with an order: experts have a mesh of "
        "their own",
        ep->size, cp->size);
}

// An order may omit axes of size 1. They are appended to it.
void RankMesh::append_rest(const std::vector<std::string>& known) {
  for (size_t axis = 0; axis < axes_.size(); ++axis) {
    if (std::ranges::find(order_, axis) != order_.end()) continue;
    if (axes_[axis].size != 1)
      fail(DSC_ERR_INVALID_ARG,
           "order leaves out \"%s\", which has size %d, expected only axes of size 1 to be "
           "left out",
           known[axis].c_str(), axes_[axis].size);
    order_.push_back(axis);
  }
}

std::string RankMesh::text_of(const std::vector<size_t>& axes) const {
  std::string text;
  for (const size_t axis : order_)
    if (std::ranges::find(axes, axis) != axes.end()) (text += text.empty() ? "" : "-") += axes_[axis].name;
  return text;
}

std::string RankMesh::describe() const {
  const auto sized = [&](size_t axis) { return axes_[axis].name + "=" + std::to_string(axes_[axis].size); };
  return joined(order_, "-", sized) + " from rank " + std::to_string(first_rank_);
}

const MeshAxis* RankMesh::find(std::string_view name) const noexcept {
  const auto at = std::ranges::find(axes_, name, &MeshAxis::name);
  return at == axes_.end() ? nullptr : &*at;
}

size_t RankMesh::axis(std::string_view name) const {
  const MeshAxis* at = find(name);
  if (!at)
    fail(DSC_ERR_INVALID_ARG, "there is no axis \"%s\"%s", shown_words(name).c_str(),
         known_names(name, names_of(axes_)).c_str());
  return static_cast<size_t>(at - axes_.data());
}

std::vector<size_t> RankMesh::axis_set(std::string_view names) const {
  std::vector<size_t> set;
  for (const std::string_view token : split_tokens(names, "axes")) set.push_back(axis(token));
  return set;
}

void RankMesh::check_rank(const char* name, int32_t rank) const {
  if (rank < first_rank_ || rank - first_rank_ >= size_)
    fail(DSC_ERR_INVALID_ARG, "%s is %d, expected %d to %d", name, rank, first_rank_,
         first_rank_ + size_ - 1);
}

int32_t RankMesh::coordinate(int32_t rank, size_t axis) const noexcept {
  return (rank - first_rank_) / strides_[axis] % axes_[axis].size;
}

int32_t RankMesh::rank(std::span<const int32_t> coordinates) const {
  int32_t rank = first_rank_;
  for (size_t axis = 0; axis < axes_.size(); ++axis) {
    if (coordinates[axis] < 0 || coordinates[axis] >= axes_[axis].size)
      fail(DSC_ERR_INVALID_ARG, "the coordinate of \"%s\" is %d, expected 0 to %d", axes_[axis].name.c_str(),
           coordinates[axis], axes_[axis].size - 1);
    rank += coordinates[axis] * strides_[axis];
  }
  return rank;
}

int32_t RankMesh::replaced(int32_t rank, size_t axis, int32_t coordinate) const noexcept {
  return rank + (coordinate - this->coordinate(rank, axis)) * strides_[axis];
}

int32_t RankMesh::neighbor(int32_t rank, size_t axis, int32_t steps) const noexcept {
  const int64_t size = axes_[axis].size;
  const int64_t to = (coordinate(rank, axis) + steps % size + size) % size;
  return replaced(rank, axis, static_cast<int32_t>(to));
}

MeshGroups RankMesh::groups(const std::vector<size_t>& axes) const {
  MeshGroups groups;
  groups.first_rank_ = first_rank_;
  for (const size_t axis : order_) {
    const MeshGroups::Digit digit{axes_[axis].size, strides_[axis]};
    const bool inside = std::ranges::find(axes, axis) != axes.end();
    (inside ? groups.inside_ : groups.outside_).push_back(digit);
    (inside ? groups.size_ : groups.count_) *= digit.size;
  }
  return groups;
}

// Axes without a fixed coordinate span the group. Fixed coordinates only shift its first rank.
MeshGroups RankMesh::matching(std::span<const int32_t> coordinates) const {
  MeshGroups groups;
  groups.first_rank_ = first_rank_;
  for (const size_t axis : order_) {
    const int32_t wanted = coordinates[axis];
    if (wanted < -1 || wanted >= axes_[axis].size)
      fail(DSC_ERR_INVALID_ARG, "the coordinate of \"%s\" is %d, expected 0 to %d, or -1 for any",
           axes_[axis].name.c_str(), wanted, axes_[axis].size - 1);
    if (wanted == -1) {
      groups.inside_.push_back({axes_[axis].size, strides_[axis]});
      groups.size_ *= axes_[axis].size;
    } else {
      groups.first_rank_ += wanted * strides_[axis];
    }
  }
  return groups;
}

}  // namespace dsc
