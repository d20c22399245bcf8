// Reduce operations that callers make, under numbers of the process.
#pragma once

#include <cstdint>
#include <memory>

#include "control/call.hpp"
#include "dtype/user_op.hpp"

namespace dsc {

// What a number from kUserOp on stands for: a sum of scaled inputs, or code of the caller's.
struct CustomOp {
  double prescale = 1;
  std::shared_ptr<const UserOp> user;
};

// Any thread. Operations that use one keep it alive.
int32_t add_custom_op(CustomOp op);
std::shared_ptr<const CustomOp> find_custom_op(int32_t op) noexcept;  // null: there is none
bool remove_custom_op(int32_t op) noexcept;

// Puts a built-in or custom operation into a call. Throws INVALID_ARG for an unknown one and UNSUPPORTED when
// it does not exist for the call's type.
void set_reduction(Call& call, int32_t op);

}  // namespace dsc
