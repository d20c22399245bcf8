// The init methods, which say where the ranks of a job meet: "env://", "pmix://", "tcp://HOST:PORT" and
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

// With this method rank and world size come only from a PMIx server. The address is found as with env://.
inline constexpr std::string_view kPmixMethod = "pmix://";

// Prefix of a method that names a file on a file system that all hosts share. In this file rank 0 publishes
// where it listens.
inline constexpr std::string_view kFileMethod = "file:///";

// Returns the address of a tcp:// method. Returns nullopt for null and for the other methods, which contain
// no address. For any other text, throws INVALID_ARG and lists the methods.
std::optional<MasterAddress> parse_init_method(const char* text);

// Returns a port number from 1 to 65535, or nullopt if the text is not one.
std::optional<int32_t> parse_port(std::string_view text);

}  // namespace dsc
