// The objects that the collectives of one communicator over several hosts use.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <vector>

#include "comm/engine.hpp"
#include "engine_hier/hier_layout.hpp"
#include "engine_hier/hier_links.hpp"

namespace dsc {

// The communicator owns this struct and everything to which it refers. Only the thread that runs a collective
// uses it, so one thread at a time.
struct HierContext {
  const HierLayout& layout;
  GroupEngine& local;  // among the ranks of this host
  HierLinks& links;    // to other hosts
  HierStatus& status;
  std::function<void()> check_host;  // throws if this host has failed; the error names ranks of the group
  // Scratch memory of this rank, indexed by HierCall::Scratch, which later operations reuse.
  std::array<std::vector<std::byte>, 5> scratch = {};
};

}  // namespace dsc
