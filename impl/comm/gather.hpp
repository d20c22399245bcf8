// All-gathers of values that the library itself needs.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "control/call.hpp"

namespace dsc {

// Collective. An all-gather of `bytes` bytes per rank. `kind`, `tag` and `note` distinguish one exchange from
// another. `group` is a communicator or its group engine.
template <typename Group>
void gather_bytes(Group& group, OpKind kind, uint64_t tag, const void* mine, void* all, size_t bytes,
                  const std::string& note = {}) {
  Call call = call_of_bytes(kind, -1, mine, all, bytes);
  call.tag = tag;
  std::snprintf(call.note, sizeof call.note, "%s", note.c_str());
  group.run(call);
}

// Collective. Returns the values of all ranks, in rank order.
template <typename Group, typename T>
std::vector<T> gather_all(Group& group, OpKind kind, uint64_t tag, const T& mine,
                          const std::string& note = {}) {
  std::vector<T> all(static_cast<size_t>(group.size()));
  gather_bytes(group, kind, tag, &mine, all.data(), sizeof mine, note);
  return all;
}

}  // namespace dsc
