// Handles of reducers.
#pragma once

#include "base/handle_table.hpp"
#include "open_call.hpp"
#include "reducer/reducer.hpp"

namespace dsc {

inline void expect_open(const Reducer& reducer) {
  if (reducer.is_closed()) fail(DSC_ERR_STATE, "the reducer is closed");
}

// Pins a reducer even if it is closed, for the few calls that allow this.
inline Pinned<Reducer> pin_any_reducer(const void* handle) {
  return Pinned<Reducer>(HandleKind::kBucketReducer, handle);
}

inline Open<Pinned<Reducer>> pin_reducer(const void* handle) {
  return Open<Pinned<Reducer>>(HandleKind::kBucketReducer, handle);
}

}  // namespace dsc
