#include "tensor_parallel/local_copy.hpp"

#include "base/error.hpp"
#include "dtype/dtype.hpp"
#include "memory/space.hpp"

namespace dsc {
namespace {

// Describes which part of every row is copied: this rank's slice if the step takes a slice, otherwise the
// whole row.
struct RowCopy {
  RowCopy(const TensorMap& map, const void* in, size_t element_bytes) noexcept
      : rows(map.outer.total()),
        from_row(map.dim.total() * map.inner * element_bytes),
        row_bytes(map.step == MapStep::kSlice ? map.dim.part(map.rank) * map.inner * element_bytes
                                              : from_row),
        from(static_cast<const std::byte*>(in)) {
    if (rows == 0 || row_bytes == 0) return;  // in this case `in` may be null
    if (map.step == MapStep::kSlice) from += map.dim.start(map.rank) * map.inner * element_bytes;
    if (row_bytes != from_row) return;
    row_bytes *= rows;  // whole rows are contiguous, so they are copied as one row
    rows = 1;
  }

  size_t rows, from_row, row_bytes;
  const std::byte* from;
};

}  // namespace

bool copy_locally(Comm& comm, const TensorMap& map, Call call, bool waits) {
  call.kind = OpKind::kAllGather;  // appears in the message if the device fails
  const RowCopy copy(map, call.send, dtype_bytes(call.dtype));
  const bool on_device = comm.is_on_device(call);
  if (on_device && waits) return false;
  if (copy.from == call.recv || copy.rows == 0 || copy.row_bytes == 0) return true;
  const auto space = Space::of(comm, on_device);
  if (copy.rows > 1 && !space->is_prepared() && space->is_captured(call.stream))
    fail(DSC_ERR_STATE,
         "a slice of columns needs kernels, which cannot be loaded during a stream capture; expected one "
         "such call before the capture");
  space->copy_rows({.to = call.recv,
                    .from = copy.from,
                    .rows = copy.rows,
                    .row_bytes = copy.row_bytes,
                    .to_stride = copy.row_bytes,
                    .from_stride = copy.from_row},
                   call.stream);
  return true;
}

}  // namespace dsc
