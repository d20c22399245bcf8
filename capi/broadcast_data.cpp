#include "dsc/broadcast_data.h"

#include <algorithm>
#include <cstddef>

#include "base/guard.hpp"
#include "checks.hpp"
#include "comm_call.hpp"
#include "tensor_list/broadcast_shapes.hpp"
#include "tensors.hpp"

namespace {

// Writes a shape into one tensor of the caller's list. The distance between entries of the list is the
// struct_size that the caller set, which may differ from the size in this release.
void describe_tensor(dsc_tensor_t* tensors, size_t index, dsc_dtype_t dtype, const dsc::ShapeRow& row,
                     int64_t* shape) {
  auto* bytes = reinterpret_cast<std::byte*>(tensors) + index * tensors[0].struct_size;
  auto* tensor = reinterpret_cast<dsc_tensor_t*>(bytes);
  std::ranges::copy(row.sizes, shape);
  tensor->shape = shape;
  tensor->ndim = static_cast<int32_t>(row.ndim);
  tensor->count = row.count();
  tensor->dtype = dtype;
}

}  // namespace

dsc_result_t dsc_broadcast_shapes(dsc_comm_t* comm, dsc_tensor_t* tensors, size_t n_tensors,
                                  dsc_dtype_t dtype, int32_t root, int64_t* shapes) {
  return dsc::guard(__func__, [&] {
    dsc::CommCall inside(comm);
    inside->check_rank("root", root);
    dsc::check_dtype(dtype);
    const auto given = dsc::read_tensors(tensors, n_tensors, "tensors");
    const bool is_root = inside->rank() == root;
    if (!is_root && n_tensors > 0) dsc::require(shapes, "shapes");
    const auto rows = dsc::broadcast_shapes(*inside, given, dtype, root);
    for (size_t i = 0; !is_root && i < rows.size(); ++i)
      describe_tensor(tensors, i, dtype, rows[i], shapes + i * dsc::ShapeRow::kMostDims);
  });
}
