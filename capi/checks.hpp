// Checks of arguments. Each error names the argument, and says what was expected and what was passed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/error.hpp"
#include "base/overlap.hpp"
#include "control/call.hpp"
#include "dtype/dtype.hpp"

namespace dsc {

template <typename T>
T& require(T* pointer, const char* name) {
  if (!pointer) fail(DSC_ERR_INVALID_ARG, "%s is NULL", name);
  return *pointer;
}

// The default of a size that the caller must set. It is not 0, because 0 is a valid size.
constexpr size_t kUnset = SIZE_MAX;

inline void check_set(const char* name, size_t size) {
  if (size == kUnset) fail(DSC_ERR_INVALID_ARG, "%s is not set, expected a size", name);
}

inline void check_dtype(int32_t dtype) {
  if (is_op(dtype))
    fail(DSC_ERR_INVALID_ARG, "dtype is %d, which is the operation %s; expected 1 (i8) to 13 (bool)", dtype,
         op_name(dtype));
  if (!is_dtype(dtype)) fail(DSC_ERR_INVALID_ARG, "dtype is %d, expected 1 (i8) to 13 (bool)", dtype);
}

inline void check_rank(const char* name, int32_t rank, int32_t size) {
  if (rank < 0 || rank >= size) fail(DSC_ERR_INVALID_ARG, "%s is %d, expected 0 to %d", name, rank, size - 1);
}

inline bool read_flag(const char* name, int32_t value) {
  if (value != 0 && value != 1) fail(DSC_ERR_INVALID_ARG, "%s is %d, expected 0 or 1", name, value);
  return value == 1;
}

// Returns the bytes of `count` elements times `parts`. Throws OVERFLOW if they do not fit the address space.
inline size_t checked_bytes(size_t count, int32_t dtype, size_t parts) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, dtype_bytes(dtype), &bytes) ||
      __builtin_mul_overflow(bytes, parts, &bytes) || bytes > SIZE_MAX / 2)
    fail(DSC_ERR_OVERFLOW,
         "count is %zu: a buffer of %zu x %zu elements of %zu bytes does not fit the address space", count,
         count, parts, dtype_bytes(dtype));
  return bytes;
}

inline void check_buffer(const char* name, const void* data, size_t bytes) {
  if (!data && bytes > 0) fail(DSC_ERR_INVALID_ARG, "%s is NULL, expected %zu bytes", name, bytes);
}

// Checks that two buffers do not overlap. `in_place` describes the allowed way to run in place in the error;
// it is null if there is none.
inline void check_overlap(const void* send, size_t send_bytes, const void* recv, size_t recv_bytes,
                          const char* in_place) {
  if (overlap(send, send_bytes, recv, recv_bytes))
    fail(DSC_ERR_INVALID_ARG, "send and recv overlap; expected separate buffers%s%s",
         in_place ? ", or in place: " : "", in_place ? in_place : "");
}

// Reads the caller's list, which has one count for each rank.
inline std::shared_ptr<const BlockList> read_counts(const char* name, const size_t* counts, int size,
                                                    int32_t dtype) {
  require(counts, name);
  size_t total = 0;
  for (int rank = 0; rank < size; ++rank)
    if (__builtin_add_overflow(total, counts[rank], &total) || total > SIZE_MAX / 2 / dtype_bytes(dtype))
      fail(DSC_ERR_OVERFLOW, "%s: the blocks of ranks 0 to %d do not fit the address space", name, rank);
  return std::make_shared<const BlockList>(std::vector<size_t>(counts, counts + size));
}

}  // namespace dsc
