// Communicators over a fake engine, whose ranks are threads of one test: operations meet under one lock, and
// the rank that comes last computes. It compares what the ranks ask for as the host engine does, and a
// failure revokes the group; nothing else is like it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "comm/comm.hpp"

namespace fake {

struct Shared;

// Ranks 0 to size - 1 of one group.
std::vector<std::shared_ptr<dsc::Comm>> make_world(int size, int timeout_ms = 20'000);

// Runs body(comm) for every rank of a fresh world, each in a thread of its own.
void on_ranks(int size, const std::function<void(dsc::Comm&)>& body);

// The next `count` operations that are started anywhere fail to start, for lack of memory.
void refuse_starts(int count);

// Blocks of allocate_memory() that were not released.
int live_blocks();

}  // namespace fake
