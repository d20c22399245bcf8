// Connections to a store's server, byte by byte. Tests send with them what no client would send.
#pragma once

#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <string_view>

#include "base/fd.hpp"
#include "store/frame.hpp"
#include "store/handshake.hpp"
#include "store_support.hpp"

namespace dsc::test {

inline void say(int fd, std::string_view text) { (void)!::send(fd, text.data(), text.size(), MSG_NOSIGNAL); }

inline UniqueFd connect_to(uint16_t port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress address = loopback(port).front();
  const timeval patience{30, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  if (::connect(fd.get(), address.get(), address.bytes) != 0) fd.reset();
  return fd;
}

inline std::string hear(int fd, size_t bytes) {
  std::string text(bytes, '\0');
  ssize_t got;
  do got = ::recv(fd, text.data(), bytes, MSG_WAITALL);
  // Retried because a stopped process gets EINTR from a receive that has a time limit.
  while (got < 0 && errno == EINTR);
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
  return text;
}

// Sends a hello as a client does, and returns the connection with its keys.
struct Raw {
  UniqueFd fd;
  std::string introduction;
  std::unique_ptr<FrameCounter> outgoing;
};

inline Raw introduce(const StoreServer& server, const Token& token) {
  Raw raw;
  raw.fd = connect_to(server.port());
  const std::string greeting = hear(raw.fd.get(), kServerHelloBytes);
  ClientHello introduction;
  introduction.job = job_fingerprint("job");
  const std::string text = encode(introduction);
  const SessionKeys keys(token, greeting, text);
  raw.introduction = text + std::string(bytes_of(keys.client_proof()));
  say(raw.fd.get(), raw.introduction);
  assert_int_equal(hear(raw.fd.get(), kResultBytes + kProofBytes).size(), kResultBytes + kProofBytes);
  raw.outgoing = std::make_unique<FrameCounter>(keys.to_server());
  return raw;
}

inline bool ended(int fd) {
  char byte;
  ssize_t got;
  do got = ::recv(fd, &byte, 1, 0);
  while (got > 0 || (got < 0 && errno == EINTR));
  return got == 0 || errno == ECONNRESET;
}

}  // namespace dsc::test
