// Adds parts of equal length in their order, in f32 (f64 for f64), and rounds once. This is the local half of
// a reduce-scatter that is implemented as an all-to-all.
#pragma once

#include "device/kernels/move.hpp"

namespace dsc::kernels {

// Arguments of a reduction; sizes of parts are in bytes, the count is in elements.
struct ReduceArgs {
  const char* from;
  char* to;
  uint64_t part_bytes;  // distance between the starts of two parts
  uint64_t count;       // elements of one part
  uint32_t parts;       // above 0
  uint32_t chunks;
  double prescale;  // multiplies each element when it is read
  double divisor;   // divides the sum
};

// The accumulators of kElements neighboring elements.
template <class T, unsigned kElements>
struct Sum {
  using Wide = typename T::Wide;
  using Unit = Pack<typename T::Stored, kElements>;
  Wide sum[kElements];

  DSC_HD void add(const Unit& unit, Wide prescale, bool first) {
    for (unsigned e = 0; e < kElements; ++e) {
      const Wide value = T::widen(unit.element[e]) * prescale;
      sum[e] = first ? value : sum[e] + value;
    }
  }

  DSC_HD Unit rounded(Wide divisor) const {
    Unit unit;
    for (unsigned e = 0; e < kElements; ++e)
      unit.element[e] = T::narrow(divisor == 1 ? sum[e] : sum[e] / divisor);
    return unit;
  }
};

// Adds the parts for one thread's share of each piece.
template <class T>
struct PartsReducer {
  using Stored = typename T::Stored;
  using Wide = typename T::Wide;
  static constexpr unsigned kPack = pack_elements(sizeof(Stored));

  const ReduceArgs& args;
  GridIndex thread;

  DSC_HD void operator()(const Piece& piece) const {
    const uint64_t apart = (number(piece.from) ^ number(piece.to)) | args.part_bytes;
    if ((number(piece.from) | apart) % sizeof(Stored) != 0) return by_bytes(piece);
    const unsigned ahead = (kPack - into_pack(piece.from, sizeof(Stored), kPack)) % kPack;
    const bool alike = apart % kVectorBytes == 0;
    const unsigned head = alike && ahead < piece.count ? ahead : piece.count;
    const unsigned packs = (piece.count - head) / kPack, tail = head + packs * kPack;
    units<kPack>(piece, head, packs);
    DSC_NOT_UNROLLED
    for (unsigned side = 0; side < 2; ++side)
      units<1>(piece, side == 0 ? 0 : tail, side == 0 ? head : piece.count - tail);
  }

 private:
  // Loads from kInFlight parts are issued before the parts are added, to hide memory latency.
  template <unsigned kElements>
  DSC_HD void units(const Piece& piece, unsigned begin, unsigned n) const {
    using Unit = Pack<Stored, kElements>;
    DSC_NOT_UNROLLED
    for (unsigned at = thread.index; at < n; at += thread.count) {
      const uint64_t offset = begin * sizeof(Stored) + uint64_t{at} * sizeof(Unit);
      Sum<T, kElements> sum = {};
      DSC_NOT_UNROLLED
      for (uint32_t first = 0; first < args.parts; first += kInFlight) {
        Unit in[kInFlight];
        for (unsigned i = 0; i < kInFlight; ++i) {
          const uint32_t part = first + i < args.parts ? first + i : args.parts - 1;
          in[i] = load<Unit>(piece.from + part * args.part_bytes + offset);
        }
        for (unsigned i = 0; i < kInFlight; ++i)
          if (first + i < args.parts) sum.add(in[i], static_cast<Wide>(args.prescale), first + i == 0);
      }
      store(piece.to + offset, sum.rounded(static_cast<Wide>(args.divisor)));
    }
  }

  DSC_HD void by_bytes(const Piece& piece) const {
    DSC_NOT_UNROLLED
    for (unsigned at = thread.index; at < piece.count; at += thread.count) {
      const uint64_t offset = at * sizeof(Stored);
      Sum<T, 1> sum = {};
      for (uint32_t part = 0; part < args.parts; ++part) {
        const Pack<Stored, 1> unit = {load_bytes<Stored>(piece.from + part * args.part_bytes + offset)};
        sum.add(unit, static_cast<Wide>(args.prescale), part == 0);
      }
      store_bytes(piece.to + offset, sum.rounded(static_cast<Wide>(args.divisor)));
    }
  }
};

// Reduces everything that one thread of a launch is responsible for.
template <class T>
DSC_HD void reduce(const ReduceArgs& args, GridIndex block, GridIndex thread) {
  constexpr size_t kBytes = sizeof(typename T::Stored);
  const PartsReducer<T> reducer{args, thread};
  const Segment whole{args.from, args.to, args.count};
  DSC_NOT_UNROLLED
  for (uint32_t chunk = block.index; chunk < args.chunks; chunk += block.count)
    reducer(piece_of<kBytes, kBytes, reducer.kPack>(whole, chunk));
}

}  // namespace dsc::kernels
