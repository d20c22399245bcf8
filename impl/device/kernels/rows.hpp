// Copies, sums and multiplies rows that a list selects, in one launch each. A list has one int64 for each row
// to use; a negative entry selects no row.
#pragma once

#include "device/kernels/reduce.hpp"
#include "device/kernels/strided.hpp"

namespace dsc::kernels {

// Position of a unit: one load or store of a row.
struct RowPosition {
  uint64_t row, unit;
};

// Calls act(position) for each unit of this thread, with chunks of kChunkUnits units for each block.
template <class Act>
DSC_HD void each_row_unit(uint64_t rows, uint64_t row_units, uint64_t chunks, GridIndex block,
                          GridIndex thread, const Act& act) {
  DSC_NOT_UNROLLED
  for (uint64_t chunk = block.index; chunk < chunks; chunk += block.count) {
    const uint64_t begin = chunk * kChunkUnits, left = rows * row_units - begin;
    const unsigned n = left < kChunkUnits ? static_cast<unsigned>(left) : kChunkUnits;
    const RowPosition start{begin / row_units, begin % row_units};
    DSC_NOT_UNROLLED
    for (unsigned at = thread.index; at < n; at += thread.count) {
      RowPosition position = start;
      position.unit += at;
      carry(position.unit, position.row, row_units);
      act(position);
    }
  }
}

// ---- copies

// Arguments of a copy: row i of `to` becomes row index[i] of `from`, or zeros.
struct RowGatherArgs {
  const char* from;
  char* to;
  const int64_t* index;
  uint64_t rows, row_units;  // each above 0
  uint64_t chunks;
  uint32_t unit_bytes;  // 16, 8, 4, 2 or 1; divides all addresses and the size of a row
  uint32_t unused;
};

template <class Unit>
DSC_HD void gather_units(const RowGatherArgs& args, GridIndex block, GridIndex thread) {
  each_row_unit(args.rows, args.row_units, args.chunks, block, thread, [&](const RowPosition& position) {
    const int64_t row = args.index[position.row];
    Unit unit = {};
    if (row >= 0)
      unit =
          load<Unit>(args.from + (static_cast<uint64_t>(row) * args.row_units + position.unit) * sizeof unit);
    store<Unit>(args.to + (position.row * args.row_units + position.unit) * sizeof unit, unit);
  });
}

// Copies everything that one thread of a launch is responsible for.
DSC_HD inline void gather_rows(const RowGatherArgs& args, GridIndex block, GridIndex thread) {
  switch (args.unit_bytes) {
    case 16:
      return gather_units<Pack<uint32_t, 4>>(args, block, thread);
    case 8:
      return gather_units<Pack<uint32_t, 2>>(args, block, thread);
    case 4:
      return gather_units<uint32_t>(args, block, thread);
    case 2:
      return gather_units<uint16_t>(args, block, thread);
    default:
      return gather_units<uint8_t>(args, block, thread);
  }
}

// ---- sums

// Arguments of a sum: row i of `to` becomes the weighted sum of up to `terms` rows of `from`. Term j of row i
// has the number t = i * terms + j. It is row index[t] of `from`, or is left out if index[t] is negative. Its
// weight is weights[t], or weights[weight_index[t]] if `weight_index` is given.
struct RowSumArgs {
  const char* from;
  char* to;
  const int64_t* index;
  const char* weights;          // f32, or f64 for rows of f64; null: all are 1
  const int64_t* weight_index;  // may be null
  uint64_t rows, row_units;     // each above 0
  uint64_t chunks;
  uint32_t terms;
  uint32_t is_packed;  // 1: units have 16 bytes, 0: one element
};

template <class Wide>
DSC_HD Wide weight_of(const RowSumArgs& args, uint64_t term) {
  if (!args.weights) return 1;
  const uint64_t at = args.weight_index ? static_cast<uint64_t>(args.weight_index[term]) : term;
  return load<Wide>(args.weights + at * sizeof(Wide));
}

// Loads of kInFlight terms are issued before they are added, to hide memory latency.
template <class T, unsigned kElements>
DSC_HD void sum_unit(const RowSumArgs& args, const RowPosition& position) {
  using Unit = Pack<typename T::Stored, kElements>;
  using Wide = typename T::Wide;
  Sum<T, kElements> sum = {};
  bool is_first = true;
  DSC_NOT_UNROLLED
  for (uint32_t begin = 0; begin < args.terms; begin += kInFlight) {
    Unit in[kInFlight] = {};
    Wide weight[kInFlight] = {};
    bool is_there[kInFlight];
    for (unsigned i = 0; i < kInFlight; ++i) {
      const uint64_t term = position.row * args.terms + begin + i;
      const int64_t row = begin + i < args.terms ? args.index[term] : -1;
      is_there[i] = row >= 0;
      if (!is_there[i]) continue;
      in[i] = load<Unit>(args.from +
                         (static_cast<uint64_t>(row) * args.row_units + position.unit) * sizeof(Unit));
      weight[i] = weight_of<Wide>(args, term);
    }
    for (unsigned i = 0; i < kInFlight; ++i) {
      if (!is_there[i]) continue;
      sum.add(in[i], weight[i], is_first);
      is_first = false;
    }
  }
  store(args.to + (position.row * args.row_units + position.unit) * sizeof(Unit), sum.rounded(1));
}

// Sums everything that one thread of a launch is responsible for.
template <class T>
DSC_HD void sum_rows(const RowSumArgs& args, GridIndex block, GridIndex thread) {
  constexpr unsigned kPack = pack_elements(sizeof(typename T::Stored));
  each_row_unit(args.rows, args.row_units, args.chunks, block, thread, [&](const RowPosition& position) {
    if (args.is_packed)
      sum_unit<T, kPack>(args, position);
    else
      sum_unit<T, 1>(args, position);
  });
}

// ---- products

inline constexpr unsigned kPartialSums = 8;  // for each product

// Arguments of products: number i of `to` is the dot product of row i / divisor of `from` and row i of
// `other`, or 0 if index[i] is negative. It is computed in f64, as kPartialSums partial sums, each over every
// kPartialSums-th element. A second launch adds these in order and rounds once.
struct RowProductArgs {
  const char *from, *other;
  const int64_t* index;
  double* partial;  // kPartialSums for each number
  char* to;         // f32, or f64 for rows of f64
  uint64_t count;   // of numbers, above 0
  uint64_t divisor;
  uint64_t elements;  // of a row
  uint64_t chunks;
};

template <class T>
DSC_HD void multiply_rows(const RowProductArgs& args, GridIndex block, GridIndex thread) {
  using Stored = typename T::Stored;
  each_row_unit(args.count, kPartialSums, args.chunks, block, thread, [&](const RowPosition& position) {
    if (args.index[position.row] < 0) return;
    const char* const from = args.from + position.row / args.divisor * args.elements * sizeof(Stored);
    const char* const other = args.other + position.row * args.elements * sizeof(Stored);
    double sum = 0;
    for (uint64_t i = position.unit; i < args.elements; i += kPartialSums) {
      const double one = T::widen(load<Stored>(from + i * sizeof(Stored)));
      sum += one * static_cast<double>(T::widen(load<Stored>(other + i * sizeof(Stored))));
    }
    args.partial[position.row * kPartialSums + position.unit] = sum;
  });
}

template <class T>
DSC_HD void add_products(const RowProductArgs& args, GridIndex block, GridIndex thread) {
  using Wide = typename T::Wide;
  each_row_unit(args.count, 1, args.chunks, block, thread, [&](const RowPosition& position) {
    double total = 0;
    if (args.index[position.row] >= 0)
      for (unsigned i = 0; i < kPartialSums; ++i) total += args.partial[position.row * kPartialSums + i];
    store(args.to + position.row * sizeof(Wide), static_cast<Wide>(total));
  });
}

}  // namespace dsc::kernels
