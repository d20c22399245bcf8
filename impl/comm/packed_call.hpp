// Converts calls whose blocks are columns of a matrix, for engines that move only contiguous blocks.
#pragma once

#include <cstddef>
#include <memory>

#include "comm/scratch.hpp"
#include "comm/transfer.hpp"
#include "control/call.hpp"

namespace dsc {

// Stores the blocks of a call contiguously in host memory. A call without columns is not changed.
class PackedCall {
 public:
  // Packs the send buffer if it has columns.
  PackedCall(const Call& call, int rank, int size, Scratch& scratch);

  // Returns the same call for contiguous blocks.
  const Call& call() const noexcept { return call_; }
  // Writes the received blocks to the columns of the recv buffer. Called after the operation has succeeded.
  void unpack() const;

 private:
  const Transfer transfer_;
  std::shared_ptr<std::byte> send_, recv_;
  Call call_;
};

// Returns the same call for contiguous blocks. The caller still has to set the buffers.
Call without_columns(const Call& call);

// Returns the start, in elements, of the block for or from a member, if blocks are contiguous and in rank
// order.
size_t packed_start(const BlockList* blocks, size_t count, int member) noexcept;

}  // namespace dsc
