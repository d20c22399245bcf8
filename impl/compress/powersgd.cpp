// The products of PowerSGD. Each handles a panel of columns of the large matrix at a time, whose part of the
// thin matrix q is transposed into a scratch array first, so that vectors run along rows and the scratch
// array stays in the cache.
#include "compress/powersgd.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "dtype/fp_mode.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/powersgd.cpp"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "compress/vectors-inl.hpp"

#ifndef DSC_COMPRESS_POWERSGD_ONCE
#define DSC_COMPRESS_POWERSGD_ONCE
namespace dsc {
namespace {

constexpr size_t kPanel = 2048;          // columns
constexpr size_t kStride = kPanel + 16;  // not a power of two, so that rows do not share sets of the cache

// One panel of a product. `thin` is the panel's part of q, transposed: rank rows of `width` elements, kStride
// apart, with zeros up to the next multiple of 16.
struct Panel {
  size_t rows;
  size_t columns;  // of the whole large matrix
  size_t rank;
  size_t width;  // columns of the panel
  float* thin;
};

}  // namespace
}  // namespace dsc
#endif

HWY_BEFORE_NAMESPACE();
namespace dsc {
namespace HWY_NAMESPACE {

// Adds the dot products of one row with kRanks rows of the thin matrix to p.
template <size_t kRanks>
HWY_INLINE void add_dots(const float* row, const float* thin, size_t width, float* p) {
  Sums<float> sums[kRanks];
  const auto add_sixteen = [&](const float* x, size_t at) HWY_ATTR __attribute__((always_inline)) {
#pragma GCC unroll 16
    for (size_t v = 0; v < Sums<float>::kVectors; ++v) {
      const auto element = hn::LoadU(F32(), x + v * kF32Lanes);
#pragma GCC unroll 4
      for (size_t k = 0; k < kRanks; ++k)
        sums[k].add(v, element * hn::LoadU(F32(), thin + k * kStride + at + v * kF32Lanes));
    }
  };
  size_t at = 0;
  for (; width - at >= kSums; at += kSums) add_sixteen(row + at, at);
  if (at < width) {
    float rest[kSums] = {};
    std::memcpy(rest, row + at, (width - at) * sizeof(float));
    add_sixteen(rest, at);
  }
#pragma GCC unroll 4
  for (size_t k = 0; k < kRanks; ++k) p[k] += sums[k].total();
}

void add_product(const Panel& panel, const float* m, float* p) {
  for (size_t row = 0; row < panel.rows; ++row, m += panel.columns, p += panel.rank) {
    size_t k = 0;
    for (; panel.rank - k >= 4; k += 4) add_dots<4>(m, panel.thin + k * kStride, panel.width, p + k);
    for (; k < panel.rank; ++k) add_dots<1>(m, panel.thin + k * kStride, panel.width, p + k);
  }
}

// Adds kRows rows, times their elements of kRanks columns of p, to kRanks rows of the thin matrix.
template <size_t kRows, size_t kRanks>
HWY_INLINE void add_rows(const Panel& panel, const float* m, const float* p, float* thin) {
  const F32 f;
  size_t at = 0;
  for (; panel.width - at >= kF32Lanes; at += kF32Lanes) {
    hn::Vec<F32> rows[kRows];
#pragma GCC unroll 4
    for (size_t r = 0; r < kRows; ++r) rows[r] = hn::LoadU(f, m + r * panel.columns + at);
#pragma GCC unroll 4
    for (size_t k = 0; k < kRanks; ++k) {
      auto sum = rows[0] * hn::Set(f, p[k]);
#pragma GCC unroll 4
      for (size_t r = 1; r < kRows; ++r) sum = sum + rows[r] * hn::Set(f, p[r * panel.rank + k]);
      store_or_add<true>(sum, thin + k * kStride + at);
    }
  }
  for (; at < panel.width; ++at) {
    for (size_t k = 0; k < kRanks; ++k) {
      float sum = m[at] * p[k];
      for (size_t r = 1; r < kRows; ++r) sum += m[r * panel.columns + at] * p[r * panel.rank + k];
      thin[k * kStride + at] += sum;
    }
  }
}

template <size_t kRows>
HWY_INLINE void add_rows_of_all_ranks(const Panel& panel, const float* m, const float* p) {
  size_t k = 0;
  for (; panel.rank - k >= 4; k += 4) add_rows<kRows, 4>(panel, m, p + k, panel.thin + k * kStride);
  for (; k < panel.rank; ++k) add_rows<kRows, 1>(panel, m, p + k, panel.thin + k * kStride);
}

void add_transposed_product(const Panel& panel, const float* m, const float* p) {
  size_t row = 0;
  for (; panel.rows - row >= 4; row += 4)
    add_rows_of_all_ranks<4>(panel, m + row * panel.columns, p + row * panel.rank);
  for (; row < panel.rows; ++row)
    add_rows_of_all_ranks<1>(panel, m + row * panel.columns, p + row * panel.rank);
}

template <size_t kRows>
HWY_INLINE void write_rows(const Panel& panel, const float* p, float* out) {
  const F32 f;
  size_t at = 0;
  for (; panel.width - at >= kF32Lanes; at += kF32Lanes) {
    hn::Vec<F32> sums[kRows];
    const auto first = hn::LoadU(f, panel.thin + at);
#pragma GCC unroll 4
    for (size_t r = 0; r < kRows; ++r) sums[r] = first * hn::Set(f, p[r * panel.rank]);
    for (size_t k = 1; k < panel.rank; ++k) {
      const auto q = hn::LoadU(f, panel.thin + k * kStride + at);
#pragma GCC unroll 4
      for (size_t r = 0; r < kRows; ++r) sums[r] = sums[r] + q * hn::Set(f, p[r * panel.rank + k]);
    }
#pragma GCC unroll 4
    for (size_t r = 0; r < kRows; ++r) hn::StoreU(sums[r], f, out + r * panel.columns + at);
  }
  for (; at < panel.width; ++at) {
    for (size_t r = 0; r < kRows; ++r) {
      float sum = panel.thin[at] * p[r * panel.rank];
      for (size_t k = 1; k < panel.rank; ++k) sum += panel.thin[k * kStride + at] * p[r * panel.rank + k];
      out[r * panel.columns + at] = sum;
    }
  }
}

void write_outer_product(const Panel& panel, const float* p, float* out) {
  size_t row = 0;
  for (; panel.rows - row >= 4; row += 4)
    write_rows<4>(panel, p + row * panel.rank, out + row * panel.columns);
  for (; row < panel.rows; ++row) write_rows<1>(panel, p + row * panel.rank, out + row * panel.columns);
}

}  // namespace HWY_NAMESPACE
}  // namespace dsc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsc {

HWY_EXPORT(add_product);
HWY_EXPORT(add_transposed_product);
HWY_EXPORT(write_outer_product);

namespace {

// Transposes the panel's part of q into the scratch array.
void take_thin(const float* q, const Panel& panel) {
  const size_t padded = (panel.width + 15) / 16 * 16;
  for (size_t k = 0; k < panel.rank; ++k) {
    float* const row = panel.thin + k * kStride;
    for (size_t c = 0; c < panel.width; ++c) row[c] = q[c * panel.rank + k];
    std::fill(row + panel.width, row + padded, 0.0f);
  }
}

void give_thin(const Panel& panel, float* q) {
  for (size_t k = 0; k < panel.rank; ++k)
    for (size_t c = 0; c < panel.width; ++c) q[c * panel.rank + k] = panel.thin[k * kStride + c];
}

// Calls body(panel, first column) for every panel.
template <class Body>
void for_each_panel(size_t rows, size_t columns, size_t rank, Body body) {
  const FpMode mode;
  std::vector<float> scratch(rank * kStride);
  for (size_t at = 0; at < columns; at += kPanel)
    body(Panel{rows, columns, rank, std::min(kPanel, columns - at), scratch.data()}, at);
}

}  // namespace

bool is_worth_compressing(size_t rows, size_t columns, size_t rank, double min_rate) {
  const auto height = static_cast<double>(rows), width = static_cast<double>(columns);
  return (height + width) * static_cast<double>(rank) * min_rate < height * width;
}

void multiply(const float* m, const float* q, float* p, size_t rows, size_t columns, size_t rank) {
  std::fill_n(p, rows * rank, 0.0f);
  for_each_panel(rows, columns, rank, [&](const Panel& panel, size_t at) {
    take_thin(q + at * rank, panel);
    HWY_DYNAMIC_DISPATCH(add_product)(panel, m + at, p);
  });
}

void multiply_transposed(const float* m, const float* p, float* q, size_t rows, size_t columns, size_t rank) {
  for_each_panel(rows, columns, rank, [&](const Panel& panel, size_t at) {
    std::fill_n(panel.thin, rank * kStride, 0.0f);
    HWY_DYNAMIC_DISPATCH(add_transposed_product)(panel, m + at, p);
    give_thin(panel, q + at * rank);
  });
}

void approximate(const float* p, const float* q, float* out, size_t rows, size_t columns, size_t rank) {
  if (rank == 0) {
    std::fill_n(out, rows * columns, 0.0f);
    return;
  }
  for_each_panel(rows, columns, rank, [&](const Panel& panel, size_t at) {
    take_thin(q + at * rank, panel);
    HWY_DYNAMIC_DISPATCH(write_outer_product)(panel, p, out + at);
  });
}

}  // namespace dsc
#endif
