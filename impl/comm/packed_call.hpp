// Calls whose blocks are columns of a matrix, for engines that move only contiguous blocks.
#pragma once

#include <cstddef>
#include <memory>

#include "comm/scratch.hpp"
#include "comm/transfer.hpp"
#include "control/call.hpp"

namespace dsc {

// Holds the blocks of a call one after another, in host memory. A call without columns stays as it is.
class PackedCall {
 public:
  // Packs the send buffer if it has columns.
  PackedCall(const Call& call, int rank, int size, Scratch& scratch);

  // The same call on contiguous blocks.
  const Call& call() const noexcept { return call_; }
  // Writes the received blocks to the columns of the recv buffer, after the call has succeeded.
  void unpack() const;

 private:
  const Transfer transfer_;
  std::shared_ptr<std::byte> send_, recv_;
  Call call_;
};

// Returns the call with contiguous blocks, in buffers that the caller has yet to set.
Call without_columns(const Call& call);

// Returns where the block for or from a member starts if the blocks lie one after another, in elements.
size_t packed_start(const BlockList* blocks, size_t count, int member) noexcept;

}  // namespace dsc
