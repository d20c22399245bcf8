// Reduce operations of the caller's.
#pragma once

#include "dtype/reduce.hpp"

namespace dsc {

struct UserOp {
  // inout[i] = inout[i] op in[i] for `count` elements; both are aligned for the type. Not 0: it failed.
  int32_t (*function)(const void* in, void* inout, size_t count, int32_t dtype, void* context);
  void* context;
  uint64_t id;
  bool commutative;  // sources are combined in order all the same
};

// What is wrong with the other fields of a spec with a user operation, thrown.
void check_user_op(const ReduceSpec& spec, int src_count);

// reduce() by spec.user, in tiles. The function is called in order of sources, on one thread, in the
// floating-point mode of reduce(), and the library refuses to be called from inside it. When it fails,
// some destinations are written and others not.
void reduce_by_user(const ReduceSpec& spec, const void* const* srcs, int src_count, void* const* dsts,
                    int dst_count, size_t count);

}  // namespace dsc
