// "env://", "pmix://", "tcp://HOST:PORT": where a job meets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dsc {

struct MasterAddress {
  std::string host;
  int32_t port;
};

// Rank and size from a PMIx server and nobody else; the address as with env://.
inline constexpr std::string_view kPmixMethod = "pmix://";

// Nothing for null, "env://" and "pmix://": the environment says. Throws UNSUPPORTED for the forms of later
// versions, INVALID_ARG (naming the forms) for everything else.
std::optional<MasterAddress> parse_init_method(const char* text);

// A port number from 1 to 65535, or nothing.
std::optional<int32_t> parse_port(std::string_view text);

}  // namespace dsc
