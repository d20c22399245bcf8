// A client for the store of torchrun's agent at MASTER_ADDR:MASTER_PORT. It implements the part of PyTorch's
// TCPStore protocol that puts and gets values. It detects which of two generations of the protocol the agent
// uses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/environment.hpp"
#include "store/exchange.hpp"
#include "store/tcp_stream.hpp"

namespace dsc {

// Returns "dsc/RUN_ID/RESTART_COUNT/WORLD/". With this prefix no two jobs, restarts or worlds of a process
// use the same key.
std::string agent_prefix(const Environment& environment, uint32_t world);

// One thread at a time may use it. It connects at the first call, and again after a failure.
class AgentStore final : public Exchange {
 public:
  static constexpr size_t kMostValueBytes = 64 << 10;

  AgentStore(std::string host, int32_t port, std::string prefix);

  // put() and get() throw TIMEOUT if no process listens at the address, no answer arrives or the key has no
  // value. Both throw PROTOCOL with the first bytes received if another program answers, and SYSTEM if the
  // agent has ended.
  void put(std::string_view key, std::string_view value, Deadline deadline) override;
  std::string get(std::string_view key, int32_t owner, Deadline deadline) override;

 private:
  enum class Request { kSet, kGet, kCheck, kWait, kCountKeys };

  std::string request(Request kind) const;
  std::string key_text(std::string_view key) const;
  void connect(Deadline deadline);
  bool knows_handshake(Deadline deadline);
  void check_count(int64_t count) const;
  void check_without_handshake(Deadline deadline);
  template <typename Body>
  auto converse(Deadline deadline, Body body);
  void send(const std::string& message, Deadline deadline);
  template <typename T>
  T answer(Deadline deadline);
  [[noreturn]] void fail_short(const void* data, size_t bytes, Deadline deadline) const;
  [[noreturn]] void fail_foreign(const void* data, size_t bytes) const;

  const std::string host_;
  const int32_t port_;
  const std::string prefix_;
  TcpStream stream_;
  bool greeted_ = false;
  // PyTorch 2.2 and later expect a greeting, and their request codes are higher by one.
  bool handshake_ = true;
};

}  // namespace dsc
