// The matrix products of PowerSGD. Each product processes one panel of columns of the large matrix after
// another. First, it transposes the panel's part of the thin matrix q into a scratch array. Vectors then run
// along rows, and the scratch array stays in the cache.
#include "compress/powersgd.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "dtype/fp_mode.hpp"

#ifndef HWY_TARGET_INCLUDE  // kernels.cpp defines this macro and includes this file
#define HWY_TARGET_INCLUDE "compress/powersgd.cpp"
#endif
#include "hwy/foreach_target.h"
// This header must be included after foreach_target.h.
#include "compress/vectors-inl.hpp"

#ifndef DSC_COMPRESS_POWERSGD_ONCE
#define DSC_COMPRESS_POWERSGD_ONCE
namespace dsc {

constexpr size_t kPanel = 2048;  // number of columns in a panel
// Distance between two rows of the scratch array, in elements. It is not a power of two, so that rows do not
// compete for the same cache sets.
constexpr size_t kStride = kPanel + 16;

// One panel of a product: `width` of the matrix's columns. `thin` is the transposed part of q for this panel:
// `rank` rows of `width` elements, kStride apart, with zeros up to the next multiple of 16.
struct Panel {
  size_t rows, columns, rank;
  size_t width;
  float* thin;
};

}  // namespace dsc
#endif

HWY_BEFORE_NAMESPACE();
namespace dsc {
namespace HWY_NAMESPACE {

// Adds sixteen products for each pair of kRows rows and kRanks rows of the thin matrix. Rows are `stride`
// apart.
template <size_t kRows, size_t kRanks>
HWY_INLINE void add_sixteen(const float* rows, size_t stride, const float* thin,
                            Sums<float> (&sums)[kRows][kRanks]) {
  const F32 f;
#pragma GCC unroll 16
  for (size_t v = 0; v < Sums<float>::kVectors; ++v) {
#pragma GCC unroll 4
    for (size_t k = 0; k < kRanks; ++k) {
      const auto q = hn::LoadU(f, thin + k * kStride + v * kF32Lanes);
#pragma GCC unroll 4
      for (size_t r = 0; r < kRows; ++r)
        sums[r][k].add(v, hn::LoadU(f, rows + r * stride + v * kF32Lanes) * q);
    }
  }
}

// Adds the dot products of kRows rows with kRanks rows of the thin matrix to p.
template <size_t kRows, size_t kRanks>
HWY_INLINE void add_dots(const Panel& panel, const float* m, const float* thin, float* p) {
  Sums<float> sums[kRows][kRanks];
  size_t at = 0;
  for (; panel.width - at >= kSums; at += kSums) add_sixteen(m + at, panel.columns, thin + at, sums);
  if (at < panel.width) {
    float rest[kRows][kSums] = {};
    for (size_t r = 0; r < kRows; ++r)
      std::memcpy(rest[r], m + r * panel.columns + at, (panel.width - at) * sizeof(float));
    add_sixteen(rest[0], kSums, thin + at, sums);
  }
#pragma GCC unroll 4
  for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (size_t k = 0; k < kRanks; ++k) p[r * panel.rank + k] += sums[r][k].total();
  }
}

// Calls body.run<rows, ranks>(first row, first rank) for all rows of the matrix and all rows of the thin
// matrix, which are called ranks here. A call handles up to four rows and two ranks. Reading several rows
// together uses more of the memory bandwidth than reading one row. Each group of rows is used for all ranks
// while it is in the cache.
template <size_t kRows, class Body>
HWY_INLINE void for_ranks(const Panel& panel, size_t row, const Body& body) {
  size_t k = 0;
  for (; panel.rank - k >= 2; k += 2) body.template run<kRows, 2>(row, k);
  if (k < panel.rank) body.template run<kRows, 1>(row, k);
}
template <class Body>
HWY_INLINE void for_rows_and_ranks(const Panel& panel, const Body& body) {
  size_t row = 0;
  for (; panel.rows - row >= 4; row += 4) for_ranks<4>(panel, row, body);
  for (; row < panel.rows; ++row) for_ranks<1>(panel, row, body);
}

struct AddDots {
  const Panel& panel;
  const float* m;
  float* p;

  template <size_t kRows, size_t kRanks>
  HWY_INLINE void run(size_t row, size_t k) const {
    add_dots<kRows, kRanks>(panel, m + row * panel.columns, panel.thin + k * kStride,
                            p + row * panel.rank + k);
  }
};

void add_product(const Panel& panel, const float* m, float* p) {
  for_rows_and_ranks(panel, AddDots{panel, m, p});
}

// Adds kRows rows, multiplied by their elements in kRanks columns of p, to kRanks rows of the thin matrix.
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

struct AddRows {
  const Panel& panel;
  const float *m, *p;

  template <size_t kRows, size_t kRanks>
  HWY_INLINE void run(size_t row, size_t k) const {
    add_rows<kRows, kRanks>(panel, m + row * panel.columns, p + row * panel.rank + k,
                            panel.thin + k * kStride);
  }
};

void add_transposed_product(const Panel& panel, const float* m, const float* p) {
  for_rows_and_ranks(panel, AddRows{panel, m, p});
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

// Transposes this panel's part of q into the scratch array.
void take_thin(const float* q, const Panel& panel) {
  const size_t padded = (panel.width + 15) / 16 * 16;
  for (size_t k = 0; k < panel.rank; ++k) {
    float* const row = panel.thin + k * kStride;
    if (panel.rank == 1) {
      std::copy_n(q, panel.width, row);
    } else {
      for (size_t c = 0; c < panel.width; ++c) row[c] = q[c * panel.rank + k];
    }
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
