// User-defined reduce operations. Their numbers are unique in the process.
#pragma once

#include <cstdint>
#include <memory>

#include "control/call.hpp"
#include "dtype/user_op.hpp"

namespace dsc {

// An operation whose number is kUserOp or higher: a sum of scaled inputs, or a function of the user if `user`
// is set.
struct CustomOp {
  double prescale = 1;
  std::shared_ptr<const UserOp> user;
};

// Any thread. Running operations keep a removed custom operation alive.
int32_t add_custom_op(CustomOp op);
std::shared_ptr<const CustomOp> find_custom_op(int32_t op) noexcept;  // null: unknown
bool remove_custom_op(int32_t op) noexcept;

// Puts a built-in or custom operation into a call. Throws INVALID_ARG for an unknown operation, and
// UNSUPPORTED if it does not exist for the call's type.
void set_reduction(Call& call, int32_t op);

}  // namespace dsc
