#include "dtype/dtype.hpp"

#include <iterator>

namespace dsc {
namespace {

enum class Kind : uint8_t { kNone, kInteger, kFloat, kBool };

struct DtypeRow {
  const char* name;
  uint8_t bytes;
  Kind kind;
};

// Indexed by number.
constexpr DtypeRow kDtypes[] = {
    {"unknown dtype", 0, Kind::kNone}, {"i8", 1, Kind::kInteger},  {"u8", 1, Kind::kInteger},
    {"i32", 4, Kind::kInteger},        {"u32", 4, Kind::kInteger}, {"i64", 8, Kind::kInteger},
    {"u64", 8, Kind::kInteger},        {"f16", 2, Kind::kFloat},   {"f32", 4, Kind::kFloat},
    {"f64", 8, Kind::kFloat},          {"bf16", 2, Kind::kFloat},  {"f8e4m3", 1, Kind::kFloat},
    {"f8e5m2", 1, Kind::kFloat},       {"bool", 1, Kind::kBool},
};
static_assert(std::size(kDtypes) == DSC_DTYPE_BOOL + 1);

constexpr const char* kOps[] = {"unknown op", "sum", "prod", "max", "min", "avg", "band", "bor", "bxor"};
static_assert(std::size(kOps) == DSC_OP_BXOR + 1);

const DtypeRow& row(int32_t dtype) { return kDtypes[is_dtype(dtype) ? dtype : 0]; }

}  // namespace

bool is_dtype(int32_t dtype) { return dtype >= DSC_DTYPE_I8 && dtype <= DSC_DTYPE_BOOL; }
size_t dtype_bytes(int32_t dtype) { return row(dtype).bytes; }
const char* dtype_name(int32_t dtype) { return row(dtype).name; }

bool is_floating(int32_t dtype) { return row(dtype).kind == Kind::kFloat; }

bool is_op(int32_t op) { return op >= DSC_OP_SUM && op <= DSC_OP_BXOR; }
const char* op_name(int32_t op) { return kOps[is_op(op) ? op : 0]; }

const char* op_unsupported_reason(int32_t op, int32_t dtype) {
  if (!is_dtype(dtype)) return "this is not an element type";
  if (!is_op(op)) return "this is not a reduce operation";
  const Kind kind = row(dtype).kind;
  if (op == DSC_OP_AVG && kind == Kind::kBool) return "truth values have no average";
  if (op == DSC_OP_AVG && kind == Kind::kInteger) return "an average of integers is not exact; use sum";
  if (op >= DSC_OP_BAND && kind == Kind::kFloat) return "bitwise operations need integers or bool";
  return nullptr;
}

}  // namespace dsc
