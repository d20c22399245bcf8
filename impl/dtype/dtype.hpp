// Element types and reduce operations: names, sizes, and which pairs go together.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dsc/types.h"

namespace dsc {

bool is_dtype(int32_t dtype);
size_t dtype_bytes(int32_t dtype);      // 0 when unknown
const char* dtype_name(int32_t dtype);  // "f32"; "unknown dtype" when unknown
bool is_floating(int32_t dtype);

bool is_op(int32_t op);           // the built-in ones
const char* op_name(int32_t op);  // "sum"; "unknown op" when unknown

// Null when `op` on `dtype` can be computed, else the reason in words that fit after "f32 band: ".
const char* op_unsupported_reason(int32_t op, int32_t dtype);
inline bool op_supports(int32_t op, int32_t dtype) { return op_unsupported_reason(op, dtype) == nullptr; }

}  // namespace dsc
