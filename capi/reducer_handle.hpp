// Handles of reducers.
#pragma once

#include "base/handle_table.hpp"
#include "reducer/reducer.hpp"

namespace dsc {

inline Pinned<Reducer> pin_reducer(const void* handle) {
  return Pinned<Reducer>(HandleKind::kBucketReducer, handle);
}

}  // namespace dsc
