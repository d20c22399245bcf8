// Approximation of a matrix by two thin matrices, as in PowerSGD (Vogels, Karimireddy and Jaggi, "PowerSGD:
// Practical Low-Rank Gradient Compression for Distributed Optimization", 2019). Which matrices are
// compressed, and how columns are made orthogonal, is the same as in PyTorch's powerSGD_hook. Matrices are
// row-major without gaps.
//
// The same input gives the same bits on every processor, except for the sign and payload of NaN. For this,
// f32 numbers are added in a fixed order and never by fused instructions. The product of a row and a column
// is summed in panels of 2,048 elements with sixteen running sums each. The product of two columns is summed
// in blocks of four rows. The caller's floating-point mode does not matter.
//
// Outputs must not overlap inputs. The products allocate memory for 2,064 * rank numbers, and orthogonalise()
// for a copy of the matrix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace dsc {

// Returns whether two thin matrices of this rank are smaller than the matrix by at least the given factor:
// (rows + columns) * rank * min_rate < rows * columns.
inline bool is_worth_compressing(size_t rows, size_t columns, size_t rank, double min_rate) {
  const auto height = static_cast<double>(rows), width = static_cast<double>(columns);
  return (height + width) * static_cast<double>(rank) * min_rate < height * width;
}

// Fills the array with random numbers from the standard normal distribution, by SplitMix64 and the transform
// of Box and Muller (1958). Logarithm, sine and cosine are computed here from additions, multiplications and
// divisions, because the functions of different C libraries differ in the last bit.
void fill_normal(uint64_t seed, std::span<float> out);

// Makes the columns orthogonal, each with the norm 1, by the modified Gram-Schmidt process. Each column is
// divided by its norm plus `epsilon`, which may be 0. A column of zeros stays zero. Dot products and norms
// are computed in f64.
void orthogonalise(float* matrix, size_t rows, size_t columns, float epsilon);

// Computes p = m q, where m is rows x columns, q columns x rank and p rows x rank.
void multiply(const float* m, const float* q, float* p, size_t rows, size_t columns, size_t rank);

// Computes q = m^T p. The shapes are those of multiply().
void multiply_transposed(const float* m, const float* p, float* q, size_t rows, size_t columns, size_t rank);

// Computes out = p q^T, where `out` is rows x columns.
void approximate(const float* p, const float* q, float* out, size_t rows, size_t columns, size_t rank);

}  // namespace dsc
