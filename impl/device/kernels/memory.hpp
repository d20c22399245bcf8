// Loads and stores of the kernels. A thread moves several elements with one instruction if they are aligned.
// It issues several loads before it stores, to hide memory latency.
#pragma once

#include <cstring>

#include "device/kernels/scalar.hpp"

namespace dsc::kernels {

inline constexpr unsigned kThreads = 256;
inline constexpr unsigned kInFlight = 4;
inline constexpr unsigned kVectorBytes = 16;
// Size of the chunk that a block processes at a time, in bytes of the wider side. It is small enough that the
// last chunks of a launch keep all multiprocessors busy.
inline constexpr unsigned kChunkBytes = kThreads * kInFlight * kVectorBytes;

// Number of elements that a thread moves with one instruction. For one-byte elements the limit is 8 instead
// of 16, because the conversion code is unrolled for every element.
DSC_HD constexpr unsigned pack_elements(size_t element_bytes) {
  return element_bytes > 1 ? static_cast<unsigned>(kVectorBytes / element_bytes) : 8;
}

// The index of a thread in its block, or of a block in its grid, and the number of threads or blocks.
struct GridIndex {
  unsigned index, count;
};

// kElements elements with the alignment of a single vector load or store.
template <class Stored, unsigned kElements>
struct alignas(sizeof(Stored) * kElements) Pack {
  Stored element[kElements];
};

DSC_HD inline uint64_t number(const char* address) { return reinterpret_cast<uint64_t>(address); }

// Stops the program, as a GPU would with a misaligned-address error.
template <class Unit>
DSC_HD void expect_aligned(const char* address) {
  if (number(address) % alignof(Unit) != 0) __builtin_trap();
}

// load() and store() require an address aligned to the unit.
template <class Unit>
DSC_HD Unit load(const char* from) {
#ifdef __CUDA_ARCH__
  return *reinterpret_cast<const Unit*>(from);
#else
  expect_aligned<Unit>(from);
  Unit unit;
  std::memcpy(&unit, from, sizeof unit);
  return unit;
#endif
}

template <class Unit>
DSC_HD void store(char* to, Unit unit) {
#ifdef __CUDA_ARCH__
  *reinterpret_cast<Unit*>(to) = unit;
#else
  expect_aligned<Unit>(to);
  std::memcpy(to, &unit, sizeof unit);
#endif
}

// load_bytes() and store_bytes() accept any address.
template <class Unit>
DSC_HD Unit load_bytes(const char* from) {
  Unit unit;
  std::memcpy(&unit, from, sizeof unit);
  return unit;
}

template <class Unit>
DSC_HD void store_bytes(char* to, Unit unit) {
  std::memcpy(to, &unit, sizeof unit);
}

// Stores change(unit) for each of the n units. This thread handles every thread.count-th unit. Loads beyond
// the end are redirected to the last unit, so that they need no branch. If `stores` is false, units are only
// passed to change().
template <class In, class Out, class Change>
DSC_HD void move_units(const char* from, char* to, unsigned n, GridIndex thread, Change& change,
                       bool stores = true) {
  DSC_NOT_UNROLLED
  for (unsigned first = thread.index; first < n; first += kInFlight * thread.count) {
    In in[kInFlight];
    for (unsigned i = 0; i < kInFlight; ++i) {
      const unsigned at = first + i * thread.count;
      in[i] = load<In>(from + uint64_t{at < n ? at : n - 1} * sizeof(In));
    }
    for (unsigned i = 0; i < kInFlight; ++i) {
      const unsigned at = first + i * thread.count;
      if (at >= n) continue;
      const Out out = change(in[i]);
      if (stores) store<Out>(to + uint64_t{at} * sizeof(Out), out);
    }
  }
}

}  // namespace dsc::kernels
