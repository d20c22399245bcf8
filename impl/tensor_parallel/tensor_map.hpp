// Mappings of tensor parallelism. Ranks divide a tensor, and a mapping exchanges its parts in the forward and
// backward pass. The mappings are those of Megatron-LM's tensor_parallel/mappings.py (commit d98e8a6), for
// any dimension.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/split_range.hpp"
#include "comm/division.hpp"
#include "control/call.hpp"

namespace dsc {

// The operation of a mapping in one direction, forward or backward.
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

// Returns the operation of a mapping; `mapping` must be a valid dsc_tensor_mapping_t.
MapStep map_step(int32_t mapping, bool forward) noexcept;

// Returns true if the step changes which dimension is divided: from `outer` to `dim`, or the reverse.
constexpr bool exchanges_dimensions(MapStep step) noexcept {
  return step == MapStep::kSequenceToHidden || step == MapStep::kHiddenToSequence;
}

// The buffers of a mapping on one rank.
struct MapBuffers {
  MapBuffers(const void* sent, void* received) noexcept
      : send(static_cast<const std::byte*>(sent)), recv(static_cast<std::byte*>(received)) {}

  const std::byte* send;
  std::byte* recv;
};

// A mapping of the tensor [outer, dim, inner] on one rank. In an all-to-all with unequal parts, `outer` is
// not divided, `dim` contains the sizes that this rank sends to each rank, and `received` contains the sizes
// that it receives from each rank.
struct TensorMap {
  MapStep step;
  int rank, size;
  Division outer, dim;
  size_t inner;
  std::optional<Division> received = std::nullopt;
  // The chunk that the call processes: number `number` of `of` chunks. `of` is 0 if the call processes the
  // whole tensor. `outer` is the size of the first dimension of the whole tensor. `elements` is set if the
  // chunk consists of some elements of every rank's part.
  struct Chunk {
    size_t number = 0, of = 0, outer = 0;
    std::optional<Range> elements = std::nullopt;
  };
  Chunk chunk = {};

  // Return the number of elements in this rank's send buffer and recv buffer.
  size_t in_count() const noexcept;
  size_t out_count() const noexcept;
  bool is_local() const noexcept { return step == MapStep::kIdentity || step == MapStep::kSlice; }
  bool keeps_size() const noexcept { return step == MapStep::kIdentity || step == MapStep::kAllReduce; }
  // Returns true if the mapping can be divided into chunks. This requires that ranks do not exchange parts
  // pairwise.
  bool has_chunks() const noexcept { return step != MapStep::kAllToAll && !exchanges_dimensions(step); }
  // Narrows a mapping with equal parts, and its buffers, to a chunk. A chunk consists of some rows of
  // `outer`. If `outer` has only one row, it consists of some elements of each part.
  void take_chunk(size_t number, size_t of, size_t element_bytes, MapBuffers& buffers);
  // Sets kind, count, blocks and columns of a call, and a note with the tensor's shape, which ranks compare.
  // Must not be called for a local step.
  void set_call(Call& call) const;

 private:
  MapBuffers take_rows(size_t element_bytes, const MapBuffers& whole);
  MapBuffers take_elements(size_t element_bytes, const MapBuffers& whole);
  void set_elements(Call& call, const Range& elements) const;
  void set_gather(Call& call) const;
  void set_reduce_scatter(Call& call) const;
  void set_all_to_all(Call& call) const;
  void set_shape(Call& call) const noexcept;
};

}  // namespace dsc
