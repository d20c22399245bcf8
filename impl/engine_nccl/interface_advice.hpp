// Advice on the network interface that NCCL should use. libdsc never sets NCCL_SOCKET_IFNAME itself.
#pragma once

#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/environment.hpp"
#include "bootstrap/launcher.hpp"

namespace dsc {

// Returns the interfaces that are up and have an address that other hosts may reach.
std::vector<std::string> outward_interfaces();

// Returns the interface through which the kernel reaches an address, or which has that address; empty if
// unknown.
std::string interface_towards(const std::string& address, Deadline deadline);

// Returns a sentence of advice if a job has several hosts and NCCL would have to choose an interface;
// otherwise an empty text. `towards` is the interface that leads to rank 0, or empty if unknown.
std::string interface_advice(const Launch& launch, const Environment& environment,
                             const std::vector<std::string>& interfaces, const std::string& towards);

// Does the same for the interfaces of this host. It never throws.
std::string interface_advice(const Launch& launch, const Environment& environment, Deadline deadline);

}  // namespace dsc
