// User-defined reduce operations.
#pragma once

#include <functional>
#include <span>

#include "dtype/reduce.hpp"

namespace dsc {

// Elements that a user-defined function combines: result[i] = result[i] op input[i]. Both arrays are aligned
// for their type.
struct UserOpCall {
  const void* input;
  void* result;
  size_t count;
  int32_t dtype;
  std::span<char> error;  // a function that fails may write the reason here, ended by a zero
};

// A user-defined operation. Its function returns 0, or another number on failure.
struct UserOp {
  std::function<int32_t(const UserOpCall&)> function;
  uint64_t id;
  bool commutative;  // for information only: sources are always combined in order
};

// Throws if a spec with a user-defined operation has another field that is wrong.
void check_user_op(const ReduceSpec& spec, int src_count);

// Implements reduce() with spec.user, in tiles. The function is called in the order of sources, on one
// thread, in the floating-point mode of reduce(), and may not call the library. If it fails, some
// destinations may have been written and others not.
void reduce_by_user(const ReduceSpec& spec, const void* const* srcs, int src_count, void* const* dsts,
                    int dst_count, size_t count);

}  // namespace dsc
