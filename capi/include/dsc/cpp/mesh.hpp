// Meshes: named axes over ranks, and communicators for the groups along them.
#ifndef DSC_CPP_MESH_HPP
#define DSC_CPP_MESH_HPP

#include <cstdint>
#include <dsc/cpp/comm.hpp>
#include <string>
#include <utility>
#include <vector>

namespace dsc {
inline namespace v0 {

// Never changes; any thread may use it. Lists of axes are texts such as "tp-dp".
class mesh {
 public:
  // Names and sizes: mesh({{"pp", 2}, {"dp", 4}}). Without an order in the options, the last axis is the
  // fastest.
  explicit mesh(const std::vector<std::pair<std::string, std::int32_t>>& axes,
                const mesh_options& options = {})
      : n_axes_(axes.size()) {
    std::vector<const char*> names;
    std::vector<std::int32_t> sizes;
    for (const auto& [axis, size] : axes) {
      names.push_back(axis.c_str());
      sizes.push_back(size);
    }
    handle_ = decltype(handle_)(
        detail::query<dsc_mesh_t*>(dsc_mesh_create, names.data(), sizes.data(), n_axes_, &options));
  }

  dsc_mesh_t* get() const noexcept { return handle_.get(); }

  std::int32_t size() const { return detail::query<std::int32_t>(dsc_mesh_size, get()); }
  std::int32_t axis_size(const std::string& axis) const {
    return detail::query<std::int32_t>(dsc_mesh_axis_size, get(), axis.c_str());
  }

  // The coordinates of a rank, one per axis, and the rank with these coordinates.
  std::vector<std::int32_t> coord(std::int32_t rank) const {
    std::vector<std::int32_t> coords(n_axes_);
    check(dsc_mesh_coord(get(), rank, coords.data(), coords.size()));
    return coords;
  }
  std::int32_t rank(span<const std::int32_t> coords) const {
    return detail::query<std::int32_t>(dsc_mesh_rank, get(), coords.data(), coords.size());
  }

  // The rank that is some steps away along an axis, which is a ring, and the rank with another coordinate
  // there.
  std::int32_t neighbor(std::int32_t rank, const std::string& axis, std::int32_t steps) const {
    return detail::query<std::int32_t>(dsc_mesh_neighbor, get(), rank, axis.c_str(), steps);
  }
  std::int32_t peer(std::int32_t rank, const std::string& axis, std::int32_t coord) const {
    return detail::query<std::int32_t>(dsc_mesh_peer, get(), rank, axis.c_str(), coord);
  }

  // The ranks of one rank's group along the axes.
  std::vector<std::int32_t> group(std::int32_t rank, const std::string& axes) const {
    return read_list<std::int32_t>([&](std::int32_t* ranks, std::size_t capacity, std::size_t* needed) {
      return dsc_mesh_group(get(), rank, axes.c_str(), ranks, capacity, needed, nullptr, nullptr);
    });
  }

  // The communicator of this rank's group along the axes. Collective over `comm`, which is as large as the
  // mesh.
  dsc::comm comm(const comm_view& parent, const std::string& axes,
                 const dsc_comm_options_t* options = nullptr) const {
    return dsc::comm(detail::query<dsc_comm_t*>(dsc_mesh_comm, get(), parent.get(), axes.c_str(), options));
  }

 private:
  std::size_t n_axes_;
  handle<dsc_mesh_t, dsc_mesh_destroy> handle_;
};

}  // namespace v0
}  // namespace dsc

#endif  // DSC_CPP_MESH_HPP
