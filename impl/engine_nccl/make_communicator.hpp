// Makes communicators of NCCL on all ranks together. If the first attempt fails, it makes a second one.
#pragma once

#include <memory>

#include "comm/engine.hpp"
#include "engine_nccl/device_world.hpp"
#include "engine_nccl/published_calls.hpp"

namespace dsc {

// Collective: allocates the memory in which the ranks of this host publish their calls. Its size is equal on
// all hosts.
std::shared_ptr<PublishedCalls> make_published_calls(GroupEngine& host);

// Collective: makes a communicator of the ranks of `host`. If one rank fails, all throw.
std::shared_ptr<NcclCommunicator> make_communicator(const DeviceWorld& world, GroupEngine& host,
                                                    PublishedCalls& published, const NcclSettings& settings,
                                                    Deadline end);

}  // namespace dsc
