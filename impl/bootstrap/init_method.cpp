#include "bootstrap/init_method.hpp"

#include <charconv>

#include "base/error.hpp"

namespace dsc {
namespace {

// Parses "HOST:PORT" or "[IPv6]:PORT".
std::optional<MasterAddress> parse_address(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return std::nullopt;
  const auto port = parse_port(text.substr(colon + 1));
  std::string_view host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string_view::npos)
    return std::nullopt;
  if (!port || host.empty() || host.find_first_of("[]/?# ") != std::string_view::npos) return std::nullopt;
  return MasterAddress{std::string(host), *port};
}

}  // namespace

std::optional<int32_t> parse_port(std::string_view text) {
  int32_t port = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc{} || stop != text.data() + text.size() || port < 1 || port > 65535)
    return std::nullopt;
  return port;
}

std::optional<MasterAddress> parse_init_method(const char* text) {
  const std::string_view method = text == nullptr ? "env://" : text;
  if (method == "env://" || method == kPmixMethod) return std::nullopt;
  if (method.starts_with(kFileMethod) && method.size() > kFileMethod.size()) return std::nullopt;
  if (method.starts_with("tcp://"))
    if (auto address = parse_address(method.substr(6))) return address;
  fail(
      DSC_ERR_INVALID_ARG,
      "init_method is '%.100s', expected env://, pmix://, file:///PATH or tcp://HOST:PORT with a port from 1 "
      "to 65535",
      text);
}

}  // namespace dsc
