// "env://", "pmix://", "tcp://HOST:PORT", "file:///PATH": where a job meets.
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

// A file that all hosts share, through which rank 0 tells the others where it listens.
inline constexpr std::string_view kFileMethod = "file:///";

// Nothing for null and the forms without an address: the environment says. Throws INVALID_ARG (naming the
// forms) for what is none of them.
std::optional<MasterAddress> parse_init_method(const char* text);

// A port number from 1 to 65535, or nothing.
std::optional<int32_t> parse_port(std::string_view text);

}  // namespace dsc
