// Copies rows of equal length between two layouts in one launch. This joins the slices of a dimension into a
// whole tensor, or splits a tensor into slices.
#pragma once

#include "device/kernels/move.hpp"

namespace dsc::kernels {

inline constexpr unsigned kChunkUnits = kThreads * kInFlight;

// Arguments of a strided copy. A unit is the largest size that divides all addresses and distances.
struct StridedArgs {
  const char* from;
  char* to;
  uint64_t parts, rows, row_units;  // each above 0
  uint64_t from_part, from_row;     // distances between consecutive parts or rows, in bytes
  uint64_t to_part, to_row;
  uint64_t chunks;
  uint32_t unit_bytes;  // 16, 8, 4, 2 or 1; divides all addresses and distances
  uint32_t unused;
};

// Position of a unit in the copy.
struct StridedPosition {
  uint64_t part, row, unit;
};

// Reduces `low` to less than `size` and adds the quotient to `high`. Requires low - size < 2^31, so that the
// division can be done in 32 bits.
DSC_HD inline void carry(uint64_t& low, uint64_t& high, uint64_t size) {
  if (low < size) return;
  if (size >> 31 != 0) {
    low -= size;
    ++high;
    return;
  }
  const auto short_low = static_cast<uint32_t>(low), short_size = static_cast<uint32_t>(size);
  high += short_low / short_size;
  low = short_low % short_size;
}

DSC_HD inline StridedPosition strided_position(const StridedArgs& args, uint64_t unit) {
  const uint64_t row = unit / args.row_units;
  return {row / args.rows, row % args.rows, unit % args.row_units};
}

template <class Unit>
DSC_HD void copy_chunk(const StridedArgs& args, uint64_t chunk, GridIndex thread) {
  const uint64_t begin = chunk * kChunkUnits, left = args.parts * args.rows * args.row_units - begin;
  const unsigned n = left < kChunkUnits ? static_cast<unsigned>(left) : kChunkUnits;
  const StridedPosition start = strided_position(args, begin);
  DSC_NOT_UNROLLED
  for (unsigned first = thread.index; first < n; first += kInFlight * thread.count) {
    Unit unit[kInFlight];
    char* to[kInFlight];
    for (unsigned i = 0; i < kInFlight; ++i) {
      const unsigned at = first + i * thread.count;
      StridedPosition position = start;
      position.unit += at < n ? at : n - 1;
      carry(position.unit, position.row, args.row_units);
      carry(position.row, position.part, args.rows);
      const uint64_t inside = position.unit * sizeof(Unit);
      to[i] = args.to + position.part * args.to_part + position.row * args.to_row + inside;
      unit[i] =
          load<Unit>(args.from + position.part * args.from_part + position.row * args.from_row + inside);
    }
    for (unsigned i = 0; i < kInFlight; ++i)
      if (first + i * thread.count < n) store<Unit>(to[i], unit[i]);
  }
}

template <class Unit>
DSC_HD void copy_chunks(const StridedArgs& args, GridIndex block, GridIndex thread) {
  DSC_NOT_UNROLLED
  for (uint64_t chunk = block.index; chunk < args.chunks; chunk += block.count)
    copy_chunk<Unit>(args, chunk, thread);
}

// Copies everything that one thread of a launch is responsible for.
DSC_HD inline void copy_strided(const StridedArgs& args, GridIndex block, GridIndex thread) {
  switch (args.unit_bytes) {
    case 16:
      return copy_chunks<Pack<uint32_t, 4>>(args, block, thread);
    case 8:
      return copy_chunks<Pack<uint32_t, 2>>(args, block, thread);
    case 4:
      return copy_chunks<uint32_t>(args, block, thread);
    case 2:
      return copy_chunks<uint16_t>(args, block, thread);
    default:
      return copy_chunks<uint8_t>(args, block, thread);
  }
}

}  // namespace dsc::kernels
