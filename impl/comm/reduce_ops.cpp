#include "comm/reduce_ops.hpp"

#include <cmath>
#include <map>

#include "base/error.hpp"
#include "base/mutex.hpp"
#include "dtype/dtype.hpp"

namespace dsc {
namespace {

// Maps numbers to user-defined operations. A number is never reused, so that an outdated number cannot select
// another operation.
struct OpRegistry {
  Mutex mutex;
  std::map<int32_t, std::shared_ptr<const CustomOp>> ops DSC_GUARDED_BY(mutex);
  int32_t next DSC_GUARDED_BY(mutex) = kUserOp;

  static OpRegistry& get() {
    static auto* const instance = new OpRegistry;
    return *instance;
  }
};

}  // namespace

int32_t add_custom_op(CustomOp op) {
  OpRegistry& registry = OpRegistry::get();
  auto kept = std::make_shared<const CustomOp>(std::move(op));
  MutexLock lock(registry.mutex);
  if (registry.next == INT32_MAX) fail(DSC_ERR_OVERFLOW, "no numbers are left for further operations");
  registry.ops.emplace(registry.next, std::move(kept));
  return registry.next++;
}

std::shared_ptr<const CustomOp> find_custom_op(int32_t op) noexcept {
  OpRegistry& registry = OpRegistry::get();
  MutexLock lock(registry.mutex);
  const auto found = registry.ops.find(op);
  return found == registry.ops.end() ? nullptr : found->second;
}

bool remove_custom_op(int32_t op) noexcept {
  OpRegistry& registry = OpRegistry::get();
  MutexLock lock(registry.mutex);
  return registry.ops.erase(op) > 0;
}

void set_reduction(Call& call, int32_t op) {
  std::shared_ptr<const CustomOp> custom;
  if (!is_op(op) && !(op >= kUserOp && (custom = find_custom_op(op))))
    fail(DSC_ERR_INVALID_ARG,
         "op is %d, expected 101 (sum) to 108 (bxor), or an operation from dsc_op_create_premul() or "
         "dsc_op_create_user() that was not destroyed",
         op);
  if (custom && custom->user) {
    call.op = kUserOp;
    call.op_id = custom->user->id;
    call.user = custom->user;
    return;
  }
  call.op = custom ? DSC_OP_SUM : op;
  if (!op_supports(call.op, call.dtype))
    fail(DSC_ERR_UNSUPPORTED, "%s of %s: %s", op_name(call.op), dtype_name(call.dtype),
         op_unsupported_reason(call.op, call.dtype));
  if (!custom) return;
  if (!is_floating(call.dtype))
    fail(DSC_ERR_UNSUPPORTED, "op is a scaled sum and the elements are %s, expected a floating-point type",
         dtype_name(call.dtype));
  // All types except f64 are scaled in f32.
  const auto narrow = static_cast<float>(custom->prescale);
  if (call.dtype != DSC_DTYPE_F64 && (!std::isfinite(narrow) || (narrow == 0 && custom->prescale != 0)))
    fail(DSC_ERR_INVALID_ARG, "op has the scale %g, expected a number in the range of f32 for elements of %s",
         custom->prescale, dtype_name(call.dtype));
  call.prescale = custom->prescale;
}

}  // namespace dsc
