// Mappings of tensor parallelism: how ranks that divide a tensor exchange its parts, forward and backward.
// The mappings are those of Megatron-LM's tensor_parallel/mappings.py (commit d98e8a6), for any dimension.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "comm/division.hpp"
#include "control/call.hpp"

namespace dsc {

// What a mapping does in one direction.
enum class MapStep : uint8_t {
  kIdentity,
  kSlice,
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kSequenceToHidden,
  kHiddenToSequence
};

// The arguments are valid values of dsc_tensor_mapping_t and dsc_map_direction_t.
MapStep map_step(int32_t mapping, int32_t direction) noexcept;

// A mapping of the tensor [outer, dim, inner] on one rank. In an all-to-all of unequal parts, `outer` is not
// divided, `dim` says what this rank sends to each rank, and `received` what it receives from each.
struct TensorMap {
  MapStep step;
  int rank, size;
  Division outer, dim;
  size_t inner;
  std::optional<Division> received = std::nullopt;
  // The chunk that the call is about; `of` is 0 if it is about the whole. `outer` is the tensor's.
  struct Chunk {
    size_t number = 0, of = 0, outer = 0;
  };
  Chunk chunk = {};

  // Elements of this rank's buffers.
  size_t in_count() const noexcept;
  size_t out_count() const noexcept;
  bool is_local() const noexcept { return step == MapStep::kIdentity || step == MapStep::kSlice; }
  // Returns whether the mapping can be taken in chunks: it does not exchange parts pairwise.
  bool has_chunks() const noexcept {
    return step != MapStep::kAllToAll && step != MapStep::kSequenceToHidden &&
           step != MapStep::kHiddenToSequence;
  }
  // Fills in kind, count, blocks and columns, and what ranks compare besides: the tensor's shape. Must not be
  // called if the step is local.
  void set_call(Call& call) const;
  // The same for elements `begin` to `begin + length` - 1 of every rank's part, of an all-gather or a
  // reduce-scatter with equal parts and `outer` 1. This rank's part starts at the buffer of the call that
  // holds it; the other buffer is that of the whole.
  void set_chunk(Call& call, size_t begin, size_t length) const;

 private:
  void set_gather(Call& call) const;
  void set_reduce_scatter(Call& call) const;
  void set_all_to_all(Call& call) const;
  void set_shape(Call& call) const noexcept;
};

}  // namespace dsc
