// Arithmetic on a mesh of ranks with named axes: the coordinates of a rank, and the ranks that share a group
// with it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace dsc {

inline constexpr int32_t kInferredSize = -1;
inline constexpr size_t kMostAxes = 32;

// A named axis and its size.
struct MeshAxis {
  std::string name;
  int32_t size;
};

// Arguments of dsc_mesh_create().
struct MeshSettings {
  std::vector<MeshAxis> axes;  // a size of -1 is allowed once and is inferred from the world size
  const char* order = nullptr;
  int32_t world_size = 0;  // 0 means the product of the sizes
  int32_t first_rank = 0;
};

// Position of a rank: the index of its group, and its index in that group.
struct MeshPosition {
  int32_t group;
  int32_t member;
};

// The groups along some axes. Ranks of the same group differ only in these axes. Groups and members are
// numbered by their coordinates, the fastest axis first. The order in which the axes were given does not
// matter.
class MeshGroups {
 public:
  int32_t count() const noexcept { return count_; }
  int32_t size() const noexcept { return size_; }
  int32_t rank(int32_t group, int32_t member) const noexcept;
  MeshPosition position(int32_t rank) const noexcept;  // the rank must be in the mesh

 private:
  friend class RankMesh;
  struct Digit {
    int32_t size;
    int32_t stride;
  };
  static int32_t offset(const std::vector<Digit>& digits, int32_t number) noexcept;
  static int32_t number(const std::vector<Digit>& digits, int32_t offset) noexcept;

  std::vector<Digit> inside_, outside_;  // fastest first
  int32_t first_rank_ = 0;
  int32_t count_ = 1;
  int32_t size_ = 1;
};

// A mesh of ranks. It is immutable.
class RankMesh {
 public:
  // Throws INVALID_ARG, OVERFLOW. The rules are documented at dsc_mesh_create().
  explicit RankMesh(const MeshSettings& settings);

  int32_t size() const noexcept { return size_; }
  int32_t first_rank() const noexcept { return first_rank_; }
  const std::vector<MeshAxis>& axes() const noexcept { return axes_; }
  const std::vector<size_t>& order() const noexcept { return order_; }  // fastest first
  bool has_order() const noexcept { return ordered_; }                  // whether the caller gave an order
  std::string order_text() const { return text_of(order_); }
  std::string text_of(const std::vector<size_t>& axes) const;  // such as "tp-cp-ep-dp-pp", fastest first
  // Equal texts mean equal meshes; the order in which axes were named does not matter.
  std::string describe() const;

  // Each of these functions throws INVALID_ARG for arguments that do not belong to this mesh.
  size_t axis(std::string_view name) const;
  std::vector<size_t> axis_set(std::string_view names) const;  // from a text such as "tp-dp"
  void check_rank(const char* name, int32_t rank) const;

  const MeshAxis* find(std::string_view name) const noexcept;  // null if there is no such axis
  int32_t stride(size_t axis) const noexcept { return strides_[axis]; }

  int32_t coordinate(int32_t rank, size_t axis) const noexcept;
  int32_t rank(std::span<const int32_t> coordinates) const;
  int32_t replaced(int32_t rank, size_t axis, int32_t coordinate) const noexcept;
  // Returns the rank that is `steps` further along an axis, which is treated as a ring.
  int32_t neighbor(int32_t rank, size_t axis, int32_t steps) const noexcept;
  // `names` is a text such as "tp-dp".
  MeshGroups groups(std::string_view names) const { return groups(axis_set(names)); }
  // If `axes` is empty, every rank is a separate group.
  MeshGroups groups(const std::vector<size_t>& axes) const;
  // Returns a single group of the ranks with these coordinates, in ascending order. The coordinate -1 matches
  // any value.
  MeshGroups matching(std::span<const int32_t> coordinates) const;

 private:
  void take_axes(const MeshSettings& settings);
  void take_order(const char* order);
  void append_rest(const std::vector<std::string>& known);

  std::vector<MeshAxis> axes_;
  std::vector<size_t> order_;
  std::vector<int32_t> strides_;  // indexed by axis
  bool ordered_ = false;
  int32_t size_ = 1;
  int32_t first_rank_ = 0;
};

}  // namespace dsc
