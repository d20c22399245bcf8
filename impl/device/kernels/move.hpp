// Copies many segments of memory in one launch, with scale and conversion: tensors into a bucket, and back.
#pragma once

#include <type_traits>

#include "device/kernels/norm.hpp"

namespace dsc::kernels {

// A move of more segments needs several launches. Kernel arguments are passed by value. At 28 bytes per
// segment they exceed 4 KiB, which drivers since CUDA 12.1 accept.
inline constexpr unsigned kMaxSegments = 256;

// One piece of contiguous memory to be moved.
struct Segment {
  const char* from;
  char* to;
  uint64_t count;  // in elements, above 0
};

// Arguments of a move: the segments, and the index that each segment's first chunk has in the launch.
struct MoveArgs {
  double scale;
  NormState* norm;  // null if the kernel computes no norm
  uint32_t segments;
  uint32_t chunks;
  Segment segment[kMaxSegments];
  uint32_t first_chunk[kMaxSegments];
};

// Number of elements in one chunk, computed from the larger of the two element sizes.
DSC_HD constexpr unsigned chunk_elements(size_t from_bytes, size_t to_bytes) {
  return static_cast<unsigned>(kChunkBytes / (from_bytes > to_bytes ? from_bytes : to_bytes));
}

// Returns the index of the segment that contains the chunk. The segment's index must be at least `low`.
DSC_HD inline unsigned find_segment(const MoveArgs& args, uint32_t chunk, unsigned low) {
  unsigned end = args.segments;
  while (end - low > 1) {
    const unsigned middle = (low + end) / 2;
    (args.first_chunk[middle] <= chunk ? low : end) = middle;
  }
  return low;
}

// The part of a segment that lies in one chunk.
struct Piece {
  const char* from;
  char* to;
  unsigned count;
};

// Returns how many elements the address lies after the start of a pack. All chunks begin at the start of a
// pack, except possibly the first chunk of a segment, which is then shorter by this number. `bytes` is the
// size of an element.
DSC_HD inline unsigned into_pack(const char* from, size_t bytes, unsigned pack) {
  return static_cast<unsigned>(number(from) / bytes % pack);
}

DSC_HD inline uint64_t count_chunks(uint64_t count, unsigned into_pack, unsigned chunk_elements) {
  return (count + into_pack + chunk_elements - 1) / chunk_elements;
}

// Returns the piece of a segment that lies in its `chunk`-th chunk.
template <size_t kFromBytes, size_t kToBytes, unsigned kPack>
DSC_HD Piece piece_of(const Segment& segment, uint32_t chunk) {
  constexpr unsigned kElements = chunk_elements(kFromBytes, kToBytes);
  const unsigned into = into_pack(segment.from, kFromBytes, kPack);
  const uint64_t end = (uint64_t{chunk} + 1) * kElements - into;
  const uint64_t start = chunk == 0 ? 0 : end - kElements;
  return {segment.from + start * kFromBytes, segment.to + start * kToBytes,
          static_cast<unsigned>((end < segment.count ? end : segment.count) - start)};
}

// Calls act(piece) for each chunk that this block processes.
template <size_t kFromBytes, size_t kToBytes, unsigned kPack, class Act>
DSC_HD void each_chunk(const MoveArgs& args, GridIndex block, Act& act) {
  unsigned at = 0;
  DSC_NOT_UNROLLED
  for (uint32_t chunk = block.index; chunk < args.chunks; chunk += block.count) {
    at = find_segment(args, chunk, at);
    act(piece_of<kFromBytes, kToBytes, kPack>(args.segment[at], chunk - args.first_chunk[at]));
  }
}

// Converts and scales elements, and passes every input value to `watch`.
template <class From, class To, class Watch>
struct Convert {
  typename From::Wide scale;
  Watch watch;

  DSC_HD typename To::Stored element(typename From::Stored bits) {
    const typename From::Wide value = From::widen(bits);
    watch.see(value);
    if constexpr (std::is_same_v<From, To>)
      if (scale == 1) return bits;
    return To::narrow(value * scale);
  }

  template <unsigned kElements>
  DSC_HD Pack<typename To::Stored, kElements> operator()(const Pack<typename From::Stored, kElements>& in) {
    Pack<typename To::Stored, kElements> out;
    for (unsigned i = 0; i < kElements; ++i) out.element[i] = element(in.element[i]);
    return out;
  }
};

// Moves one thread's share of the pieces, with conversion.
template <class From, class To, class Watch>
struct Mover {
  using In = typename From::Stored;
  using Out = typename To::Stored;
  static constexpr unsigned kPack = pack_elements(sizeof(In) > sizeof(Out) ? sizeof(In) : sizeof(Out));

  GridIndex thread;
  Convert<From, To, Watch> convert;

  // If both sides become aligned at the same element, moves whole packs between unaligned ends. Otherwise
  // moves element by element.
  DSC_HD void operator()(const Piece& piece) {
    if (number(piece.from) % sizeof(In) != 0 || number(piece.to) % sizeof(Out) != 0) return by_bytes(piece);
    const unsigned into = into_pack(piece.from, sizeof(In), kPack), ahead = (kPack - into) % kPack;
    const bool alike = into == into_pack(piece.to, sizeof(Out), kPack);
    const unsigned head = alike && ahead < piece.count ? ahead : piece.count;
    const unsigned packs = (piece.count - head) / kPack, tail = head + packs * kPack;
    units<kPack>(piece, head, packs);
    DSC_NOT_UNROLLED
    for (unsigned side = 0; side < 2; ++side)
      units<1>(piece, side == 0 ? 0 : tail, side == 0 ? head : piece.count - tail);
  }

 private:
  template <unsigned kElements>
  DSC_HD void units(const Piece& piece, unsigned begin, unsigned n) {
    bool stores = true;
    if constexpr (std::is_same_v<From, To> && !std::is_same_v<Watch, NoWatch>)
      stores = piece.from != piece.to || convert.scale != 1;
    move_units<Pack<In, kElements>, Pack<Out, kElements>>(
        piece.from + begin * sizeof(In), piece.to + begin * sizeof(Out), n, thread, convert, stores);
  }

  DSC_HD void by_bytes(const Piece& piece) {
    DSC_NOT_UNROLLED
    for (unsigned i = thread.index; i < piece.count; i += thread.count)
      store_bytes(piece.to + i * sizeof(Out), convert.element(load_bytes<In>(piece.from + i * sizeof(In))));
  }
};

// Moves everything that one thread of a launch is responsible for. Returns the thread's watch, to which all
// values were passed.
template <class From, class To, class Watch>
DSC_HD Watch move(const MoveArgs& args, GridIndex block, GridIndex thread) {
  using Wide = typename From::Wide;
  Mover<From, To, Watch> mover{thread, {static_cast<Wide>(args.scale), {}}};
  each_chunk<sizeof(typename From::Stored), sizeof(typename To::Stored), mover.kPack>(args, block, mover);
  return mover.convert.watch;
}

// The change that copies a unit unmodified.
struct Keep {
  template <class Unit>
  DSC_HD Unit operator()(const Unit& unit) const {
    return unit;
  }
};

// Copies bytes in the largest unit that both sides reach after the same number of bytes.
struct Copier {
  GridIndex thread;

  DSC_HD void operator()(const Piece& piece) {
    const uint64_t apart = number(piece.from) ^ number(piece.to);
    if (apart % 16 == 0) return copy<Pack<uint32_t, 4>>(piece);
    if (apart % 8 == 0) return copy<Pack<uint32_t, 2>>(piece);
    if (apart % 4 == 0) return copy<uint32_t>(piece);
    if (apart % 2 == 0) return copy<uint16_t>(piece);
    copy<uint8_t>(piece);
  }

 private:
  template <class Unit>
  DSC_HD void copy(const Piece& piece) {
    constexpr unsigned kBytes = sizeof(Unit);
    const unsigned ahead = (kBytes - number(piece.from) % kBytes) % kBytes;
    const unsigned head = ahead < piece.count ? ahead : piece.count;
    const unsigned units = (piece.count - head) / kBytes, tail = head + units * kBytes;
    Keep keep;
    move_units<Unit, Unit>(piece.from + head, piece.to + head, units, thread, keep);
    if constexpr (kBytes > 1) {
      move_units<uint8_t, uint8_t>(piece.from, piece.to, head, thread, keep);
      move_units<uint8_t, uint8_t>(piece.from + tail, piece.to + tail, piece.count - tail, thread, keep);
    }
  }
};

// Copies without conversion. Counts in `args` are in bytes, and the scale in `args` is ignored.
DSC_HD inline void copy(const MoveArgs& args, GridIndex block, GridIndex thread) {
  Copier copier{thread};
  each_chunk<1, 1, kVectorBytes>(args, block, copier);
}

}  // namespace dsc::kernels
