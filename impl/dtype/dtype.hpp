// Element types and reduce operations: names, sizes, and which operations exist for which types.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dsc/types.h"

namespace dsc {

// Properties of an element type. The table is inline because every call reads it.
struct DtypeFacts {
  uint8_t bytes;
  bool floating;
  uint16_t ops;  // op_bit() of each available operation
};

constexpr uint16_t op_bit(int32_t op) { return static_cast<uint16_t>(1u << (op - DSC_OP_SUM)); }
inline constexpr uint16_t kOrderOps =
    op_bit(DSC_OP_SUM) | op_bit(DSC_OP_PROD) | op_bit(DSC_OP_MAX) | op_bit(DSC_OP_MIN);
inline constexpr uint16_t kFloatOps = kOrderOps | op_bit(DSC_OP_AVG);
inline constexpr uint16_t kIntegerOps =
    kOrderOps | op_bit(DSC_OP_BAND) | op_bit(DSC_OP_BOR) | op_bit(DSC_OP_BXOR);

// Indexed by dsc_dtype: none, i8, u8, i32, u32, i64, u64, f16, f32, f64, bf16, f8e4m3, f8e5m2, bool.
inline constexpr DtypeFacts kDtypeFacts[] = {
    {0, false, 0},           {1, false, kIntegerOps}, {1, false, kIntegerOps}, {4, false, kIntegerOps},
    {4, false, kIntegerOps}, {8, false, kIntegerOps}, {8, false, kIntegerOps}, {2, true, kFloatOps},
    {4, true, kFloatOps},    {8, true, kFloatOps},    {2, true, kFloatOps},    {1, true, kFloatOps},
    {1, true, kFloatOps},    {1, false, kIntegerOps},
};
static_assert(sizeof kDtypeFacts / sizeof *kDtypeFacts == DSC_DTYPE_BOOL + 1);

inline bool is_dtype(int32_t dtype) { return dtype >= DSC_DTYPE_I8 && dtype <= DSC_DTYPE_BOOL; }
inline const DtypeFacts& dtype_facts(int32_t dtype) { return kDtypeFacts[is_dtype(dtype) ? dtype : 0]; }
inline size_t dtype_bytes(int32_t dtype) { return dtype_facts(dtype).bytes; }  // 0 if unknown
inline bool is_floating(int32_t dtype) { return dtype_facts(dtype).floating; }
const char* dtype_name(int32_t dtype);  // such as "f32"; "unknown dtype" if unknown

// Returns true for built-in operations.
inline bool is_op(int32_t op) { return op >= DSC_OP_SUM && op <= DSC_OP_BXOR; }
const char* op_name(int32_t op);  // such as "sum"; "unknown op" if unknown

inline bool op_supports(int32_t op, int32_t dtype) {
  return is_op(op) && (dtype_facts(dtype).ops & op_bit(op)) != 0;
}
// Returns null if `op` is available for `dtype`, otherwise the reason, as a phrase that can follow "f32 band:
// ".
const char* op_unsupported_reason(int32_t op, int32_t dtype);

}  // namespace dsc
