#include "store/resolve.hpp"

#include <strings.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <utility>

#include "base/error.hpp"
#include "base/thread.hpp"
#include "store/address.hpp"

namespace dsc {
namespace {

// The result of getaddrinfo().
struct Resolved {
  int error;
  int system_error;
  Addresses addresses;
};

Resolved resolve(const std::string& name, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(name.c_str(), nullptr, &hints, &found);
  return {error, errno, Addresses(error == 0 ? found : nullptr, ::freeaddrinfo)};
}

// getaddrinfo() has no timeout. It runs on a separate thread, and the caller stops waiting for that thread at
// the deadline.
Resolved resolve_until(const std::string& name, const std::string& what, Deadline deadline) {
  constexpr int64_t kLongestMs = 3'600'000;
  std::packaged_task<Resolved()> task([name] { return resolve(name, 0); });
  std::future<Resolved> answer = task.get_future();
  start_thread("dsc-resolve", [task = std::move(task)]() mutable { task(); }).detach();
  const std::chrono::milliseconds wait(std::min(deadline.remaining_ms(), kLongestMs));
  if (answer.wait_for(wait) == std::future_status::ready) return answer.get();
  fail(DSC_ERR_TIMEOUT, "the name servers did not resolve %s '%.100s' in time", what.c_str(), name.c_str());
}

}  // namespace

Addresses resolve_host(const std::string& host, const std::string& what, Deadline deadline) {
  // "localhost" is not looked up, because a container may have no /etc/hosts and no resolver that knows this
  // name.
  const bool is_local = ::strcasecmp(host.c_str(), "localhost") == 0;
  Resolved resolved = resolve(is_local ? loopback_address() : host, AI_NUMERICHOST);
  if (resolved.error == EAI_NONAME) resolved = resolve_until(host, what, deadline);
  if (resolved.error != 0)
    fail(
        DSC_ERR_CONFIG, "%s '%.100s' cannot be resolved: %s", what.c_str(), host.c_str(),
        resolved.error == EAI_SYSTEM ? std::strerror(resolved.system_error) : ::gai_strerror(resolved.error));
  return std::move(resolved.addresses);
}

}  // namespace dsc
