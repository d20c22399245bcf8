// Loads and stores of the kernels: several elements at once where they are aligned, and several loads of a
// thread under way before it stores.
#pragma once

#include <cassert>
#include <cstring>

#include "device/kernels/scalar.hpp"

namespace dsc::kernels {

inline constexpr unsigned kThreads = 256;
inline constexpr unsigned kInFlight = 4;
inline constexpr unsigned kVectorBytes = 16;
// What one block does at a time, in bytes of the wider side; small enough that the last ones of a launch
// keep all multiprocessors busy.
inline constexpr unsigned kChunkBytes = kThreads * kInFlight * kVectorBytes;

// That a thread moves at once. Of the small ones fewer than it could: every element is code.
DSC_HD constexpr unsigned pack_elements(size_t element_bytes) {
  return element_bytes > 1 ? static_cast<unsigned>(kVectorBytes / element_bytes) : 8;
}

// Which of how many.
struct Place {
  unsigned index, count;
};

template <class Stored, unsigned kElements>
struct alignas(sizeof(Stored) * kElements) Pack {
  Stored element[kElements];
};

DSC_HD inline uint64_t number(const char* address) { return reinterpret_cast<uint64_t>(address); }

// At a multiple of the unit's size.
template <class Unit>
DSC_HD Unit load(const char* from) {
#ifdef __CUDA_ARCH__
  return *reinterpret_cast<const Unit*>(from);
#else
  assert(number(from) % alignof(Unit) == 0);  // a GPU would stop
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
  assert(number(to) % alignof(Unit) == 0);
  std::memcpy(to, &unit, sizeof unit);
#endif
}

// At any address.
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

// Units [0, n), each as change() makes it of the one that it reads; of these the thread takes every
// thread.count-th. Loads past the end are those of the last unit once more. Unless it stores, it only looks.
template <class In, class Out, class Change>
DSC_HD void move_units(const char* from, char* to, unsigned n, Place thread, Change& change,
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
