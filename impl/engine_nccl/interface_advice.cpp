#include "engine_nccl/interface_advice.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/fd.hpp"
#include "base/guard.hpp"
#include "base/joined.hpp"
#include "store/address.hpp"

namespace dsc {
namespace {

constexpr const char* kVariable = "NCCL_SOCKET_IFNAME";

bool may_matter(const Launch& launch, const Environment& environment) {
  return launch.way == MeetingWay::kTcp && !environment(kVariable);
}

// Returns the address from which this host would send to the target. This connects a datagram socket, which
// sends nothing over the network.
std::optional<SocketAddress> source_towards(const SocketAddress& target) {
  const UniqueFd socket(::socket(target.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  SocketAddress source;
  source.bytes = sizeof source.storage;
  if (!socket || ::connect(socket.get(), target.get(), target.bytes) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&source.storage), &source.bytes) != 0)
    return std::nullopt;
  // The port is at the same offset for IPv4 and IPv6.
  reinterpret_cast<sockaddr_in*>(&source.storage)->sin_port = 0;
  return source;
}

}  // namespace

std::vector<std::string> outward_interfaces() {
  std::vector<std::string> names;
  const std::unique_ptr<struct if_nameindex, void (*)(struct if_nameindex*)> list(::if_nameindex(),
                                                                                  ::if_freenameindex);
  for (const struct if_nameindex* entry = list.get(); entry != nullptr && entry->if_index != 0; ++entry)
    if (std::ranges::any_of(interface_addresses(entry->if_name, 0), reaches_further))
      names.emplace_back(entry->if_name);
  return names;
}

std::string interface_towards(const std::string& address, Deadline deadline) {
  for (const SocketAddress& target : resolve(address, 1, "the master address", deadline)) {
    const auto source = source_towards(target);
    if (!source || !reaches_further(*source)) continue;
    for (const std::string& name : outward_interfaces())
      if (std::ranges::any_of(interface_addresses(name, 0),
                              [&](const SocketAddress& own) { return to_text(own) == to_text(*source); }))
        return name;
  }
  return "";
}

std::string interface_advice(const Launch& launch, const Environment& environment,
                             const std::vector<std::string>& interfaces, const std::string& towards) {
  if (!may_matter(launch, environment) || interfaces.size() < 2) return "";
  const std::string choice = towards.empty() ? " to an interface that the other hosts can reach"
                                             : "=" + towards + ", which leads to " + launch.master_addr;
  return "this host has several network interfaces (" + joined(interfaces, ", ") + ") and " + kVariable +
         " is not set, so NCCL may choose one that other hosts cannot reach; recommended: set " + kVariable +
         choice;
}

// Errors are ignored, because advice must not prevent a start.
std::string interface_advice(const Launch& launch, const Environment& environment, Deadline deadline) {
  std::string text;
  if (!may_matter(launch, environment)) return text;
  capture(
      [&] {
        const auto interfaces = outward_interfaces();
        if (interfaces.size() < 2) return;
        std::string towards;
        capture([&] { towards = interface_towards(launch.master_addr, deadline); },
                [](dsc_result_t, const char*) {});
        text = interface_advice(launch, environment, interfaces, towards);
      },
      [](dsc_result_t, const char*) {});
  return text;
}

}  // namespace dsc
