#include "tensor_parallel/local_copy.hpp"

#include <cstring>

#include "device/context.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

// This rank's slice of every row: the whole row unless the step takes a slice of it.
struct RowCopy {
  RowCopy(const TensorMap& map, const void* in, size_t element_bytes) noexcept
      : rows(map.outer.total()),
        from_row(map.dim.total() * map.inner * element_bytes),
        row_bytes(map.step == MapStep::kSlice ? map.dim.part(map.rank) * map.inner * element_bytes
                                              : from_row),
        from(static_cast<const std::byte*>(in)) {
    if (rows == 0 || row_bytes == 0) return;  // then `in` may be null
    if (map.step == MapStep::kSlice) from += map.dim.start(map.rank) * map.inner * element_bytes;
    if (row_bytes != from_row) return;
    row_bytes *= rows;  // the slice is everything
    rows = 1;
  }

  size_t rows, from_row, row_bytes;
  const std::byte* from;
};

void copy_on_device(const DeviceContext& context, const RowCopy& copy, void* out, void* stream) {
  const Device& device = *context.device;
  const DeviceScope scope(device);
  const auto from = reinterpret_cast<DeviceAddress>(copy.from), to = reinterpret_cast<DeviceAddress>(out);
  auto* const own = static_cast<DeviceStream*>(stream);
  if (copy.rows == 1) return device.copy(to, from, copy.row_bytes, own);
  if (!context.kernels->is_loaded() && is_capturing(device, own))
    fail(DSC_ERR_STATE,
         "a slice of columns: the kernels are not loaded, and a stream capture does not allow that; expected "
         "one such call before the capture");
  context.kernels->get().copy_strided({.from = from,
                                       .to = to,
                                       .parts = 1,
                                       .rows = copy.rows,
                                       .row_bytes = copy.row_bytes,
                                       .from_part = 0,
                                       .from_row = copy.from_row,
                                       .to_part = 0,
                                       .to_row = copy.row_bytes},
                                      own);
}

}  // namespace

bool copy_locally(Comm& comm, const TensorMap& map, Call call, bool waits) {
  call.kind = OpKind::kAllGather;  // named in a failure of the device
  const RowCopy copy(map, call.send, dtype_bytes(call.dtype));
  const bool on_device = comm.is_on_device(call);
  if (on_device && waits) return false;
  if (copy.from == call.recv || copy.rows == 0 || copy.row_bytes == 0) return true;
  if (on_device) {
    copy_on_device(*comm.device_context(), copy, call.recv, call.stream);
    return true;
  }
  auto* to = static_cast<std::byte*>(call.recv);
  for (size_t row = 0; row < copy.rows; ++row)
    std::memcpy(to + row * copy.row_bytes, copy.from + row * copy.from_row, copy.row_bytes);
  return true;
}

}  // namespace dsc
