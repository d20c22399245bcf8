#include "bootstrap/master_address.hpp"

#include "base/error.hpp"
#include "bootstrap/init_method.hpp"
#include "bootstrap/launcher_row.hpp"
#include "store/address.hpp"

namespace dsc {
namespace {

void find_host(const Environment& environment, const HostSource& launchers, MasterFinding& found) {
  if (const auto host = environment("MASTER_ADDR")) {
    found.host = *host;
    found.host_from = "MASTER_ADDR";
  } else if (const auto launchers_host = row_master(launchers, environment)) {
    found.host = *launchers_host;
    found.host_from = launchers.variable;
  } else {
    found.host = loopback_address();
    found.host_from = "default";
  }
}

bool take_port(const char* variable, const Environment& environment, MasterFinding& found) {
  const auto text = environment(variable);
  if (!text) return false;
  const auto port = parse_port(*text);
  if (!port) fail(DSC_ERR_CONFIG, "%s is '%.60s', expected 1 to 65535", variable, text->c_str());
  found.port = *port;
  found.port_from = variable;
  return true;
}

void find_port(int32_t option, const Environment& environment, const HostSource& launchers,
               MasterFinding& found) {
  // On Azure ML, DeepSpeed ignores MASTER_PORT and uses a fixed port. libdsc uses MASTER_PORT, because
  // otherwise two jobs on one host would share a port.
  if (option != 0) {
    found.port = option;
    found.port_from = "option port";
  } else if (!take_port("DSC_PORT", environment, found) && !take_port("MASTER_PORT", environment, found)) {
    found.port = launchers.port;
    found.port_from = "default";
  }
}

}  // namespace

MasterFinding find_master(const char* init_method, int32_t port, const Environment& environment,
                          const HostSource& launchers) {
  MasterFinding found{};
  if (const auto chosen = parse_init_method(init_method)) {
    if (port != 0 && port != chosen->port)
      fail(DSC_ERR_INVALID_ARG, "port is %d, but init_method says %d", port, chosen->port);
    found = {chosen->host, chosen->port, "init_method", "init_method"};
  } else {
    find_host(environment, launchers, found);
    find_port(port, environment, launchers, found);
  }
  // The address is part of the meeting's name, so different spellings of the same address are made equal.
  if (found.host == "localhost") found.host = loopback_address();
  return found;
}

}  // namespace dsc
