// Values between ranks through the PMIx server.
#pragma once

#include <cstdint>
#include <string>

#include "bootstrap/pmix_session.hpp"
#include "store/exchange.hpp"

namespace dsc {

// Any thread. No call outlasts its deadline, whether or not the server answers.
class PmixExchange final : public Exchange {
 public:
  static constexpr size_t kMostKeyBytes = 256;

  // The world's number in this process, from 0, becomes part of every key: a second world must not read what
  // the first one wrote. All ranks have to give the same.
  PmixExchange(const PmixSession& session, uint32_t world);

  // Throws TIMEOUT, SYSTEM (in libpmix's words).
  void put(std::string_view key, std::string_view value, Deadline deadline) override;
  std::string get(std::string_view key, int32_t owner, Deadline deadline) override;

 private:
  std::string full_key(std::string_view key) const;

  const PmixSession& session_;
  const std::string prefix_;  // "dsc.WORLD."
};

}  // namespace dsc
