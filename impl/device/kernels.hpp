// The kernels of kernels/ on a GPU: bucket copies with scale and conversion, strided copies, sums of parts.
//
// A launch allocates nothing and waits for nothing, and may be captured. The calling thread's context is that
// of the device, and pointers are of memory that it reaches, at any address; aligned to their elements, and
// both sides alike to 16 bytes, they are fast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "device/cuda_library.hpp"
#include "dsc/types.h"

namespace dsc {

// Without the kernels, as when there was no nvcc, a fatbin that is good for no GPU.
std::span<const std::byte> kernels_image() noexcept;
bool has_kernels() noexcept;

// One tensor of a bucket; in elements.
struct BucketPart {
  CudaAddress tensor;
  uint64_t count;
  uint64_t offset;  // into the bucket
};

// Numbers are multiplied by `scale` in f32 (f64 for f64) and rounded once; equal types and a scale of 1 keep
// all bits. NaN becomes the positive quiet one otherwise.
struct BucketCopy {
  std::span<const BucketPart> parts;  // none overlaps another
  int32_t tensor_dtype;
  CudaAddress bucket;
  int32_t bucket_dtype;
  double scale = 1;
  CudaAddress norm = 0;  // of Kernels::norm_bytes(), to which what is read is added, before the scale
};

struct ScaledCopy {
  CudaAddress from, to;  // equal ones, with equal types: scales in place; without a scale the norm alone
  uint64_t count;
  int32_t from_dtype, to_dtype;
  double scale = 1;
  CudaAddress norm = 0;
};

// Rows of `row_bytes`: `rows` of them in each of `parts`. Distances are from one to the next, in bytes.
struct StridedCopy {
  CudaAddress from, to;
  uint64_t parts, rows, row_bytes;
  uint64_t from_part, from_row;
  uint64_t to_part, to_row;
};

// [parts][outer][part_bytes] becomes [outer][parts][part_bytes], and back: slices of a dimension, one after
// another as a collective leaves them, and the whole tensor. part_bytes are of the slice's part of the
// dimension and all dimensions inside it.
StridedCopy join_slices(CudaAddress from, CudaAddress to, uint64_t parts, uint64_t outer,
                        uint64_t part_bytes) noexcept;
StridedCopy split_slices(CudaAddress from, CudaAddress to, uint64_t parts, uint64_t outer,
                         uint64_t part_bytes) noexcept;

// The sum of n_parts parts of `count` elements, in their order, in f32 (f64 for f64), rounded once. Each
// element is multiplied by `prescale` as it is read, the sum divided by `divisor`. `to` may be one of the
// parts.
struct PartsSum {
  CudaAddress from, to;
  uint64_t count;
  uint32_t n_parts;
  int32_t dtype;
  double prescale = 1;
  double divisor = 1;
  uint64_t part_bytes = 0;  // from one part to the next; 0: they touch
};

// Any thread.
class Kernels {
 public:
  // How many tensors go into one launch.
  static constexpr size_t kPartsPerLaunch = 256;

  // What a norm needs in device memory. Zeroed once, it begins with the sum of squares, an f64, and the
  // number of non-finite elements, a u64, which grow until these kNormResultBytes are zeroed again. One
  // launch at a time may use it. Its bits depend on the launches and the GPU only.
  static constexpr size_t kNormResultBytes = 16;
  static size_t norm_bytes() noexcept;

  // Loads the image and finds all kernels. The device's context is the calling thread's, also when this is
  // destroyed. Throws UNSUPPORTED when libdsc was built without kernels, BACKEND when the driver refuses.
  Kernels(std::shared_ptr<const CudaLibrary> cuda, int multiprocessors,
          std::span<const std::byte> image = kernels_image());
  ~Kernels();
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  // All throw BACKEND when a launch fails, UNSUPPORTED for types that there is no kernel for: of different
  // types f32 with f16, bf16, f8e4m3 or f8e5m2; with a scale or norm besides any floating type with itself;
  // sums of floating types.
  void gather(const BucketCopy& copy, CudaStream* stream) const;
  void scatter(const BucketCopy& copy, CudaStream* stream) const;
  void copy(const ScaledCopy& copy, CudaStream* stream) const;
  void copy_strided(StridedCopy copy, CudaStream* stream) const;
  void sum_parts(const PartsSum& sum, CudaStream* stream) const;

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
