#include "dsc/op.h"

#include <cmath>

#include "base/guard.hpp"
#include "checks.hpp"
#include "comm/reduce_ops.hpp"

dsc_result_t dsc_op_create_premul(double scale, dsc_op_t* op) {
  return dsc::guard(__func__, [&] {
    dsc::require(op, "op") = 0;
    if (!std::isfinite(scale)) dsc::fail(DSC_ERR_INVALID_ARG, "scale is %g, expected a finite number", scale);
    *op = dsc::add_custom_op({scale, nullptr});
  });
}

dsc_result_t dsc_op_create_user(dsc_op_fn combine, void* context, uint64_t id, int32_t commutative,
                                dsc_op_t* op) {
  return dsc::guard(__func__, [&] {
    dsc::require(op, "op") = 0;
    if (!combine) dsc::fail(DSC_ERR_INVALID_ARG, "combine is NULL");
    if (commutative != 0 && commutative != 1)
      dsc::fail(DSC_ERR_INVALID_ARG, "commutative is %d, expected 0 or 1", commutative);
    const auto function = [=](const dsc::UserOpCall& shown) {
      const dsc_op_call_t call{.struct_size = sizeof(dsc_op_call_t),
                               .input = shown.input,
                               .result = shown.result,
                               .error = shown.error.data(),
                               .count = shown.count,
                               .error_capacity = shown.error.size(),
                               .dtype = shown.dtype,
                               .reserved = 0};
      return combine(context, &call);
    };
    *op = dsc::add_custom_op(
        {1, std::make_shared<const dsc::UserOp>(dsc::UserOp{function, id, commutative == 1})});
  });
}

dsc_result_t dsc_op_destroy(dsc_op_t op) {
  return dsc::guard(__func__, [&] {
    if (op != 0 && !dsc::remove_custom_op(op))
      dsc::fail(DSC_ERR_INVALID_ARG,
                "op is %d, expected an operation that dsc_op_create_premul() or dsc_op_create_user() "
                "returned and that was not destroyed",
                op);
  });
}
