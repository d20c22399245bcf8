// User-defined reduce operations.
#pragma once

#include "dtype/reduce.hpp"

namespace dsc {

// A user-defined operation.
struct UserOp {
  // Computes inout[i] = inout[i] op in[i] for `count` elements. Both pointers are aligned for the type. A
  // nonzero result means failure.
  int32_t (*function)(const void* in, void* inout, size_t count, int32_t dtype, void* context);
  void* context;
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
