// Exchange of values between ranks through the PMIx server.
#pragma once

#include <cstdint>
#include <string>

#include "bootstrap/pmix_session.hpp"
#include "store/exchange.hpp"

namespace dsc {

// Any thread may use it. No call takes longer than its deadline, even if the server does not answer.
class PmixExchange final : public Exchange {
 public:
  static constexpr size_t kMostKeyBytes = 256;

  // `world` is the number of earlier worlds of this process, and must be equal on all ranks. It is part
  // of every key, so that a second world does not read values of the first.
  PmixExchange(const PmixSession& session, uint32_t world);

  // put() and get() throw TIMEOUT, and SYSTEM with libpmix's text.
  void put(std::string_view key, std::string_view value, Deadline deadline) override;
  std::string get(std::string_view key, int32_t owner, Deadline deadline) override;

 private:
  std::string full_key(std::string_view key) const;

  const PmixSession& session_;
  const std::string prefix_;  // "dsc.WORLD."
};

}  // namespace dsc
