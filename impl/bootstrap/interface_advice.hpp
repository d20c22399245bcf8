// Which network interface NCCL should be told to use. libdsc never sets NCCL_SOCKET_IFNAME itself.
#pragma once

#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/environment.hpp"
#include "bootstrap/launcher.hpp"

namespace dsc {

// The interfaces that are up and have an address which other hosts may reach.
std::vector<std::string> outward_interfaces();

// The interface through which the kernel reaches an address, or that has it; empty if it cannot be told.
std::string interface_towards(const std::string& address, Deadline deadline);

// A sentence for a job of several hosts where NCCL would have to choose between interfaces; else empty.
// `towards` is the interface that leads to rank 0; empty: unknown.
std::string interface_advice(const Launch& launch, const Environment& environment,
                             const std::vector<std::string>& interfaces, const std::string& towards);

// The same for this host. Never fails.
std::string interface_advice(const Launch& launch, const Environment& environment, Deadline deadline);

}  // namespace dsc
