#include "engine_nccl/packed_on_device.hpp"

#include <algorithm>

#include "comm/packed_call.hpp"

namespace dsc {

PackedOnDevice::PackedOnDevice(const Device& device, const Kernels& kernels, const Call& call, int rank,
                               int size, CudaStream* stream)
    : unpacked_(call),
      transfer_(unpacked_, rank, size),
      kernels_(kernels),
      stream_(stream),
      call_(without_columns(call)) {
  if (transfer_.recv_columns && transfer_.recv_bytes > 0)
    call_.recv = recv_.emplace(device, transfer_.recv_bytes, stream).data();
  if (!transfer_.send_columns || transfer_.send_bytes == 0) return;
  call_.send = send_.emplace(device, transfer_.send_bytes, stream).data();
  for (int receiver = 0; receiver < size; ++receiver) {
    const Block block = transfer_.outgoing(receiver);
    const size_t start = packed_start(transfer_.send_blocks, transfer_.count, receiver);
    copy(address_of(transfer_.send_at(block.from)), send_->address() + transfer_.bytes_of(start),
         block.from_rows, {}, block.count);
  }
}

void PackedOnDevice::unpack() const {
  if (!recv_) return;
  for (int sender = 0; sender < transfer_.size; ++sender) {
    const Block block = transfer_.received_from(sender);
    const size_t start = packed_start(transfer_.recv_blocks, transfer_.count, sender);
    copy(recv_->address() + transfer_.bytes_of(start), address_of(transfer_.recv_at(block.to)), {},
         block.to_rows, block.count);
  }
}

// At least one of source and target is contiguous.
void PackedOnDevice::copy(CudaAddress from, CudaAddress to, const Rows& from_rows, const Rows& to_rows,
                          size_t count) const {
  if (count == 0) return;
  const size_t width = std::min({from_rows.length, to_rows.length, count});
  const size_t row_bytes = transfer_.bytes_of(width);
  const auto distance = [&](const Rows& rows) {
    return rows.stride == 0 ? row_bytes : transfer_.bytes_of(rows.stride);
  };
  kernels_.copy_strided({.from = from,
                         .to = to,
                         .parts = 1,
                         .rows = count / width,
                         .row_bytes = row_bytes,
                         .from_part = 0,
                         .from_row = distance(from_rows),
                         .to_part = 0,
                         .to_row = distance(to_rows)},
                        stream_);
}

}  // namespace dsc
