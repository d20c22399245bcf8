// What a collective moves, in the terms of its data pattern.
#pragma once

#include <cstddef>

#include "control/call.hpp"
#include "dtype/reduce.hpp"

namespace dsc {

enum class Pattern : uint8_t { kNothing, kAllReduce, kBroadcast, kAllGather, kReduceScatter };

Pattern pattern_of(OpKind kind) noexcept;

struct Transfer {
  Transfer(const Call& call, int rank, int size) noexcept;

  const std::byte* send_at(size_t element) const noexcept { return send + element * element_bytes; }
  std::byte* recv_at(size_t element) const noexcept { return recv + element * element_bytes; }
  size_t bytes_of(size_t elements) const noexcept { return elements * element_bytes; }

  Pattern pattern;
  int rank;
  int size;
  int root;
  size_t element_bytes;
  size_t count;       // elements per rank
  size_t send_bytes;  // of this rank's buffers; 0 where it has none
  size_t recv_bytes;
  size_t parts;  // of the send buffer that share a stage: size for reduce-scatter, else 1
  const std::byte* send;
  std::byte* recv;
  ReduceSpec reduce;
};

}  // namespace dsc
