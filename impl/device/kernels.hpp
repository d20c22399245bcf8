// Launches the kernels of kernels/ on a GPU: copies between tensors and buckets with scale and conversion,
// strided copies, sums of parts, and operations on rows that a list selects.
//
// A launch neither allocates nor waits, and may be captured. The device's context must be current in the
// calling thread, and all pointers must be accessible from the device. Any address is allowed. Access is fast
// if source and target are aligned to their elements and have the same offset modulo 16 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "device/cuda_library.hpp"
#include "dsc/types.h"

namespace dsc {

// The image is a fatbin. If libdsc was built without nvcc, the fatbin is empty and fits no GPU.
std::span<const std::byte> kernels_image() noexcept;
bool has_kernels() noexcept;

// Describes one tensor of a bucket. Counts and offsets are in elements.
struct BucketPart {
  CudaAddress tensor;
  uint64_t count;
  uint64_t offset;  // position in the bucket
};

// Copies elements, multiplied by `scale` in f32 (f64 for f64) and rounded once. With equal types and a scale
// of 1 all bits are kept; otherwise any NaN becomes the positive quiet NaN.
struct BucketCopy {
  std::span<const BucketPart> parts;  // must not overlap
  int32_t tensor_dtype;
  CudaAddress bucket;
  int32_t bucket_dtype;
  double scale = 1;
  // Memory of Kernels::norm_bytes(), to which the norm of the unscaled input is added; 0: no norm.
  CudaAddress norm = 0;
};

// Copies `count` elements with scale and conversion, by the same rules as BucketCopy.
struct ScaledCopy {
  // If both addresses are equal and both types are equal, elements are scaled in place; with a scale of 1
  // only the norm is computed.
  CudaAddress from, to;
  uint64_t count;
  int32_t from_dtype, to_dtype;
  double scale = 1;
  CudaAddress norm = 0;
};

// Copies rows of `row_bytes`; each of `parts` parts has `rows` rows. from_part, from_row, to_part and to_row
// are distances between the starts of consecutive parts or rows, in bytes.
struct StridedCopy {
  CudaAddress from, to;
  uint64_t parts, rows, row_bytes;
  uint64_t from_part, from_row;
  uint64_t to_part, to_row;
};

// join_slices() turns [parts][outer][part_bytes] into [outer][parts][part_bytes], and split_slices() does the
// reverse. The first layout is the result of a collective: the slices of a tensor along one dimension, one
// after another. The second layout is the whole tensor. part_bytes is the size of one slice in that dimension
// and all inner dimensions.
StridedCopy join_slices(CudaAddress from, CudaAddress to, uint64_t parts, uint64_t outer,
                        uint64_t part_bytes) noexcept;
StridedCopy split_slices(CudaAddress from, CudaAddress to, uint64_t parts, uint64_t outer,
                         uint64_t part_bytes) noexcept;

// Adds n_parts parts of `count` elements in the order of the parts, in f32 (f64 for f64), and rounds once.
// Each element is multiplied by `prescale` when it is read, and the sum is divided by `divisor`. `to` may be
// one of the parts.
struct PartsSum {
  CudaAddress from, to;
  uint64_t count;
  uint32_t n_parts;
  int32_t dtype;
  double prescale = 1;
  double divisor = 1;
  uint64_t part_bytes = 0;  // distance between the starts of two parts; 0 if they are contiguous
};

// All lists below are arrays of int64 in device memory. A negative entry selects no row.

// Copies rows: row i of `to` becomes row index[i] of `from`, or zeros.
struct RowGather {
  CudaAddress from, to, index;
  uint64_t rows, row_bytes;
};

// Sums rows: row i of `to` becomes a sum of rows of `from`, or zeros. `terms` entries of `index`, starting at
// entry i * terms, select these rows in the order of the sum. Weights are f32, or f64 for rows of f64. Each
// product and each partial sum is rounded to the type of the weights, and the result is rounded once to the
// type of the rows. Addresses must be aligned to elements.
struct RowSum {
  CudaAddress from, to, index;
  uint64_t rows, elements;  // `elements` of one row
  uint32_t terms;
  int32_t dtype;
  CudaAddress weights = 0;  // 0: all weights are 1
  // Selects the weight of each term; 0: the weight has the same position as the entry in `index`.
  CudaAddress weight_index = 0;
};

// Multiplies rows: number i of `to` becomes the sum of the products of row i / divisor of `from` and row i of
// `other`, or 0 if index[i] is negative. The numbers are f32, or f64 for rows of f64. The sum is computed in
// f64 and rounded once. Addresses must be aligned to elements.
struct RowProducts {
  CudaAddress from, other, index, to;
  CudaAddress partial;  // memory of Kernels::partial_bytes(count)
  uint64_t count, divisor, elements;
  int32_t dtype;
};

// The loaded kernels of one device. Any thread may launch them.
class Kernels {
 public:
  // Number of tensors that one launch can take; longer lists are split into several launches.
  static constexpr size_t kPartsPerLaunch = 256;

  // Device memory that the computation of a norm needs, with the result at its start. The caller zeroes all
  // of it once. Launches add to the result until the caller zeroes these kNormResultBytes again. Only one
  // launch at a time may use the memory. The bits of the result depend only on the launches and the GPU.
  struct NormResult {
    double squared;      // the sum of squares; NaN or infinite if any element is
    double most;         // the largest magnitude of the elements that are not NaN
    uint64_t nonfinite;  // the number of elements that are NaN or infinite
  };
  static constexpr size_t kNormResultBytes = sizeof(NormResult);
  static size_t norm_bytes() noexcept;

  // Loads the image and finds all kernels. The device's context must be current in the calling thread, both
  // here and in the destructor. Throws UNSUPPORTED if libdsc was built without kernels, BACKEND if the driver
  // refuses the image.
  Kernels(std::shared_ptr<const CudaLibrary> cuda, int multiprocessors,
          std::span<const std::byte> image = kernels_image());
  ~Kernels();
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  // All functions throw BACKEND if a launch fails, and UNSUPPORTED for types without a kernel. Kernels exist
  // for conversions between f32 and each of f16, bf16, f8e4m3 and f8e5m2; for copies of any floating type
  // with a scale or a norm; and for sums of any floating type. Plain copies work for all types.
  void gather(const BucketCopy& copy, CudaStream* stream) const;
  void scatter(const BucketCopy& copy, CudaStream* stream) const;
  void copy(const ScaledCopy& copy, CudaStream* stream) const;
  void copy_strided(StridedCopy copy, CudaStream* stream) const;
  void sum_parts(const PartsSum& sum, CudaStream* stream) const;
  void gather_rows(const RowGather& gather, CudaStream* stream) const;
  void sum_rows(const RowSum& sum, CudaStream* stream) const;
  void multiply_rows(const RowProducts& products, CudaStream* stream) const;
  static size_t partial_bytes(size_t count) noexcept;

 private:
  struct Functions;
  struct Way;
  struct Unload {
    const CudaLibrary* cuda;
    void operator()(CudaModule* module) const noexcept;
  };
  void check(CudaResult result, const char* call, const char* kernel) const;
  CudaFunction* find(const char* name) const;
  Way way(int32_t from, int32_t to, double scale, CudaAddress norm) const;
  template <class Segments>
  void move(const Way& way, size_t count, double scale, CudaAddress norm, Segments segment,
            CudaStream* stream) const;
  void launch(CudaFunction* function, const char* name, uint64_t chunks, void* args,
              CudaStream* stream) const;
  void find_all();

  const std::shared_ptr<const CudaLibrary> cuda_;
  const unsigned most_blocks_;
  std::unique_ptr<CudaModule, Unload> module_;
  std::unique_ptr<Functions> functions_;
};

}  // namespace dsc
