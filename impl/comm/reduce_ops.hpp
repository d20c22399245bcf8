// User-defined reduce operations. Their numbers are unique in the process.
#pragma once

#include <cstdint>
#include <memory>

#include "control/call.hpp"
#include "dtype/user_op.hpp"

namespace dsc {

// A user-defined operation, whose number is kUserOp or higher. It is a function if `user` is set; otherwise
// it is a sum of scaled inputs.
struct CustomOp {
  double prescale = 1;
  std::shared_ptr<const UserOp> user;
};

// Any thread may call these functions. A running operation keeps a removed custom operation alive.
int32_t add_custom_op(CustomOp op);
std::shared_ptr<const CustomOp> find_custom_op(int32_t op) noexcept;  // null if the number is unknown
bool remove_custom_op(int32_t op) noexcept;

// Sets the reduce operation of a call. Throws INVALID_ARG for an unknown operation, and UNSUPPORTED if it
// does not support the call's element type.
void set_reduction(Call& call, int32_t op);

}  // namespace dsc
