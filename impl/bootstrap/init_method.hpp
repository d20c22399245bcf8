// The init methods, which tell where the ranks of a job meet: "env://", "pmix://", "tcp://HOST:PORT",
// "file:///PATH".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dsc {

// Host and port of a tcp:// init method.
struct MasterAddress {
  std::string host;
  int32_t port;
};

// Takes rank and size only from a PMIx server; the address is found as with env://.
inline constexpr std::string_view kPmixMethod = "pmix://";

// Names a file that all hosts share, through which rank 0 tells the others where it listens.
inline constexpr std::string_view kFileMethod = "file:///";

// Returns the address of tcp://; nullopt for null and for the other methods, which have none. Throws
// INVALID_ARG, listing the methods, for any other text.
std::optional<MasterAddress> parse_init_method(const char* text);

// Returns a port number from 1 to 65535, or nullopt.
std::optional<int32_t> parse_port(std::string_view text);

}  // namespace dsc
