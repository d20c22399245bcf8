// Mappings of tensor parallelism: how ranks that divide a tensor exchange its parts, forward and backward.
// The mappings are those of Megatron-LM's tensor_parallel/mappings.py (commit d98e8a6), for any dimension.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/split_range.hpp"
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

// `mapping` is a valid dsc_tensor_mapping_t.
MapStep map_step(int32_t mapping, bool forward) noexcept;

// Returns whether `outer` and `dim` are exchanged as the divided dimension.
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

// A mapping of the tensor [outer, dim, inner] on one rank. In an all-to-all of unequal parts, `outer` is not
// divided, `dim` tells what this rank sends to each rank, and `received` what it receives from each.
struct TensorMap {
  MapStep step;
  int rank, size;
  Division outer, dim;
  size_t inner;
  std::optional<Division> received = std::nullopt;
  // The chunk that the call processes; `of` is 0 if it processes the whole tensor. `outer` is that of the
  // tensor. `elements` are those of every rank's part, if the chunk is not a mapping of whole parts.
  struct Chunk {
    size_t number = 0, of = 0, outer = 0;
    std::optional<Range> elements = std::nullopt;
  };
  Chunk chunk = {};

  // Elements of this rank's buffers.
  size_t in_count() const noexcept;
  size_t out_count() const noexcept;
  bool is_local() const noexcept { return step == MapStep::kIdentity || step == MapStep::kSlice; }
  bool keeps_size() const noexcept { return step == MapStep::kIdentity || step == MapStep::kAllReduce; }
  // Returns whether the mapping can be done in chunks: it does not exchange parts pairwise.
  bool has_chunks() const noexcept { return step != MapStep::kAllToAll && !exchanges_dimensions(step); }
  // Narrows a mapping with equal parts, and its buffers, to a chunk: some of the rows of `outer` or, if there
  // is one row, some elements of each part.
  void take_chunk(size_t number, size_t of, size_t element_bytes, MapBuffers& buffers);
  // Fills in kind, count, blocks, columns, and the note with the tensor's shape, which ranks also compare.
  // Must not be called if the step is local.
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
