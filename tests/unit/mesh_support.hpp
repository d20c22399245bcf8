// A mesh through the public interface, for the tests.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dsc/dsc.h"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

using Ranks = std::vector<int32_t>;
using Lists = std::vector<Ranks>;
using Axes = std::vector<std::pair<std::string, int32_t>>;

inline void succeed(dsc_result_t result) {
  if (result != DSC_OK) fail_msg("%s", dsc_last_error_message());
}

class TestMesh {
 public:
  explicit TestMesh(const Axes& axes, const char* order = nullptr, int32_t world_size = 0,
                    int32_t rank_offset = 0) {
    succeed(create(axes, order, world_size, rank_offset, &handle_));
  }
  TestMesh(const TestMesh& dense, int32_t ep, int32_t expert_tp) {
    succeed(dsc_mesh_create_experts(dense.get(), ep, expert_tp, &handle_));
  }
  ~TestMesh() { dsc_mesh_destroy(handle_); }
  TestMesh(const TestMesh&) = delete;
  TestMesh& operator=(const TestMesh&) = delete;

  static dsc_result_t create(const Axes& axes, const char* order, int32_t world_size, int32_t rank_offset,
                             dsc_mesh_t** mesh) {
    std::vector<const char*> names;
    Ranks sizes;
    for (const auto& [name, size] : axes) {
      names.push_back(name.c_str());
      sizes.push_back(size);
    }
    dsc_mesh_options_t options;
    succeed(dsc_mesh_options_init(&options, sizeof options));
    options.order = order;
    options.world_size = world_size;
    options.rank_offset = rank_offset;
    return dsc_mesh_create(names.data(), sizes.data(), static_cast<int32_t>(axes.size()), &options, mesh);
  }

  dsc_mesh_t* get() const { return handle_; }

  int32_t size() const {
    int32_t size = 0;
    succeed(dsc_mesh_size(handle_, &size));
    return size;
  }

  int32_t size(const std::string& axis) const {
    int32_t size = 0;
    succeed(dsc_mesh_axis_size(handle_, axis.c_str(), &size));
    return size;
  }

  std::string order() const {
    size_t bytes = 0;
    succeed(dsc_mesh_order(handle_, nullptr, 0, &bytes));
    std::string text(bytes, 0);
    succeed(dsc_mesh_order(handle_, text.data(), bytes, &bytes));
    text.pop_back();
    return text;
  }

  Ranks coord(int32_t rank, size_t n_axes) const {
    Ranks coords(n_axes);
    succeed(dsc_mesh_coord(handle_, rank, coords.data(), static_cast<int32_t>(n_axes)));
    return coords;
  }

  int32_t rank(const Ranks& coords) const {
    int32_t rank = -1;
    succeed(dsc_mesh_rank(handle_, coords.data(), static_cast<int32_t>(coords.size()), &rank));
    return rank;
  }

  int32_t neighbor(int32_t rank, const char* axis, int32_t steps) const {
    int32_t peer = -1;
    succeed(dsc_mesh_neighbor(handle_, rank, axis, steps, &peer));
    return peer;
  }

  int32_t peer(int32_t rank, const char* axis, int32_t coord) const {
    int32_t peer = -1;
    succeed(dsc_mesh_peer(handle_, rank, axis, coord, &peer));
    return peer;
  }

  std::string name(int32_t rank, const char* omit, const char* inner = nullptr,
                   const char* outer = nullptr) const {
    char text[256];
    size_t bytes = 0;
    succeed(dsc_mesh_rank_name(handle_, rank, omit, inner, outer, text, sizeof text, &bytes));
    assert_int_equal(bytes, std::string(text).size() + 1);
    return text;
  }

  // Calls list(ranks, capacity, &n_groups, &group_size) twice, first for the sizes, as a program does.
  template <typename List>
  static Lists listed(List&& list) {
    size_t n_groups = 0, group_size = 0;
    succeed(list(nullptr, size_t{0}, &n_groups, &group_size));
    Ranks flat(n_groups * group_size);
    succeed(list(flat.data(), flat.size(), &n_groups, &group_size));
    Lists lists;
    for (size_t g = 0; g < n_groups; ++g)
      lists.emplace_back(flat.begin() + static_cast<std::ptrdiff_t>(g * group_size),
                         flat.begin() + static_cast<std::ptrdiff_t>((g + 1) * group_size));
    return lists;
  }

  Lists groups(const std::string& axes) const {
    return listed([&](auto... rest) { return dsc_mesh_groups(handle_, axes.c_str(), rest...); });
  }

  Lists levels(const char* axes, const Ranks& sizes, size_t level) const {
    return listed([&](auto... rest) {
      return dsc_mesh_levels(handle_, axes, sizes.data(), sizes.size(), level, rest...);
    });
  }

  Lists members(const char* axes, const Ranks& positions) const {
    return listed([&](auto... rest) {
      return dsc_mesh_members(handle_, axes, positions.data(), positions.size(), rest...);
    });
  }

  Ranks filter(const Ranks& coords) const {
    return listed([&](int32_t* ranks, size_t capacity, size_t* n_groups, size_t* size) {
             *n_groups = 1;
             return dsc_mesh_filter(handle_, coords.data(), static_cast<int32_t>(coords.size()), ranks,
                                    capacity, size);
           })
        .front();
  }

  Ranks group(int32_t rank, const std::string& axes, size_t* number = nullptr,
              size_t* member = nullptr) const {
    size_t size = 0;
    succeed(dsc_mesh_group(handle_, rank, axes.c_str(), nullptr, 0, &size, nullptr, nullptr));
    Ranks ranks(size);
    succeed(dsc_mesh_group(handle_, rank, axes.c_str(), ranks.data(), size, &size, number, member));
    return ranks;
  }

  using NamedGroup = std::pair<std::string, Ranks>;
  std::vector<NamedGroup> plan(const dsc_mesh_plan_options_t& options) const {
    size_t n_groups = 0, n_ranks = 0;
    succeed(dsc_mesh_plan(handle_, &options, nullptr, nullptr, 0, nullptr, 0, &n_groups, &n_ranks));
    std::vector<const char*> names(n_groups);
    std::vector<size_t> starts(n_groups + 1);
    Ranks ranks(n_ranks);
    succeed(dsc_mesh_plan(handle_, &options, names.data(), starts.data(), n_groups, ranks.data(), n_ranks,
                          &n_groups, &n_ranks));
    std::vector<NamedGroup> groups;
    for (size_t g = 0; g < n_groups; ++g)
      groups.emplace_back(names[g], Ranks(ranks.begin() + static_cast<std::ptrdiff_t>(starts[g]),
                                          ranks.begin() + static_cast<std::ptrdiff_t>(starts[g + 1])));
    return groups;
  }

 private:
  dsc_mesh_t* handle_ = nullptr;
};

inline dsc_mesh_plan_options_t plan_options(const char* style) {
  dsc_mesh_plan_options_t options;
  succeed(dsc_mesh_plan_options_init(&options, sizeof options));
  options.style = style;
  return options;
}
