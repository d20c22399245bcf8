#include "dtype/dtype.hpp"

#include <iterator>

namespace dsc {
namespace {

constexpr const char* kDtypes[] = {"unknown dtype", "i8",  "u8",  "i32",  "u32",    "i64",    "u64",
                                   "f16",           "f32", "f64", "bf16", "f8e4m3", "f8e5m2", "bool"};
static_assert(std::size(kDtypes) == DSC_DTYPE_BOOL + 1);

constexpr const char* kOps[] = {"sum", "prod", "max", "min", "avg", "band", "bor", "bxor"};
static_assert(std::size(kOps) == DSC_OP_BXOR - DSC_OP_SUM + 1);

}  // namespace

const char* dtype_name(int32_t dtype) { return kDtypes[is_dtype(dtype) ? dtype : 0]; }
const char* op_name(int32_t op) { return is_op(op) ? kOps[op - DSC_OP_SUM] : "unknown op"; }

const char* op_unsupported_reason(int32_t op, int32_t dtype) {
  if (op_supports(op, dtype)) return nullptr;
  if (!is_dtype(dtype)) return "expected an element type";
  if (!is_op(op)) return "expected a reduce operation";
  if (op == DSC_OP_AVG && dtype == DSC_DTYPE_BOOL) return "truth values have no average";
  if (op == DSC_OP_AVG) return "an average of integers is not exact; use sum";
  return "bitwise operations need integers or bool";
}

}  // namespace dsc
