#include "store/open.hpp"

#include <charconv>

#include "base/error.hpp"
#include "store/file_store.hpp"
#include "store/memory_store.hpp"

namespace dsc {
namespace {

constexpr std::string_view kMemory = "memory://";
constexpr std::string_view kFile = "file://";
constexpr std::string_view kTcp = "tcp://";
constexpr const char* kForms = "expected memory://, file:///PATH or tcp://HOST:PORT";

// Host and port of a tcp:// URI.
struct HostAndPort {
  std::string host;
  uint16_t port;
};

// Parses "host:1", "1.2.3.4:1" or "[::1]:1". For a server the port may be 0, which means any free port.
HostAndPort parse_host_and_port(std::string_view text, const std::string& uri, bool serve) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0)
    fail(DSC_ERR_INVALID_ARG, "the store's URI is '%.200s', %s", uri.c_str(), kForms);
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  unsigned port = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  const unsigned least = serve ? 0 : 1;
  if (host.empty() || error != std::errc{} || stop != digits.data() + digits.size() || port < least ||
      port > 65535)
    fail(DSC_ERR_INVALID_ARG,
         "the store's URI is '%.200s', expected tcp://HOST:PORT with a port from %u to 65535", uri.c_str(),
         least);
  return {std::string(host), static_cast<uint16_t>(port)};
}

}  // namespace

bool allows_unauthenticated(const StoreOptions& options, const Environment& environment) {
  const auto value = environment("DSC_ALLOW_UNAUTHENTICATED");
  if (value && *value != "0" && *value != "1")
    fail(DSC_ERR_CONFIG, "DSC_ALLOW_UNAUTHENTICATED is '%.40s', expected 0 or 1", value->c_str());
  return options.allow_unauthenticated || value == "1";
}

namespace {

// The process that serves the store connects to the addresses on which its server listens, even if HOST
// resolves to other addresses.
std::unique_ptr<StoreServer> serve(const HostAndPort& address, const StoreOptions& options,
                                   StoreTarget& client, const Environment& environment, Deadline deadline) {
  const std::string bind = options.bind ? options.bind : environment("DSC_BIND").value_or("");
  StoreServer::Options server;
  server.addresses = listening_addresses(address.host, bind, address.port, deadline);
  server.token = client.token;
  server.job_id = client.job_id;
  server.world_size = options.world_size;
  server.allow_unauthenticated = allows_unauthenticated(options, environment);
  auto started = std::make_unique<StoreServer>(std::move(server));
  client.port = started->port();
  client.addresses = listening_addresses(address.host, bind, client.port, deadline);
  return started;
}

OpenStore open_tcp(const HostAndPort& address, const StoreOptions& options, const std::string& job_id,
                   const Environment& environment, Deadline deadline) {
  OpenStore open;
  StoreTarget target;
  target.host = address.host;
  target.port = address.port;
  target.token = find_token(options.token, environment);
  target.job_id = job_id;
  if (options.serve) {
    open.server = serve(address, options, target, environment, deadline);
  } else {
    target.addresses = resolve(address.host, target.port, "the store's host", deadline);
  }
  open.target = target;
  open.store = open.tcp = std::make_shared<TcpStore>(std::move(target), deadline);
  return open;
}

}  // namespace

OpenStore open_store(const std::string& uri, const StoreOptions& options, const Environment& environment,
                     Deadline deadline) {
  const std::string job_id = options.job_id ? options.job_id : environment("DSC_JOB_ID").value_or("");
  if (uri.starts_with(kTcp))
    return open_tcp(parse_host_and_port(std::string_view(uri).substr(kTcp.size()), uri, options.serve),
                    options, job_id, environment, deadline);
  if (options.serve)
    fail(DSC_ERR_INVALID_ARG, "serve is set, but the store's URI is '%.200s', expected tcp://HOST:PORT",
         uri.c_str());
  OpenStore open;
  if (uri == kMemory)
    open.store = std::make_shared<MemoryStore>();
  else if (uri.starts_with(kFile))
    open.store = std::make_shared<FileStore>(uri.substr(kFile.size()), job_id, deadline);
  else
    fail(DSC_ERR_INVALID_ARG, "the store's URI is '%.200s', %s", uri.c_str(), kForms);
  return open;
}

}  // namespace dsc
