// The least that ranks need to find each other. Every start-up system offers it: PMIx, a program's own
// callbacks, any store.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.hpp"

namespace dsc {

class Exchange {
 public:
  virtual ~Exchange() = default;

  // Lets the other ranks read `value` under `key`. A key is put by one rank, once.
  virtual void put(std::string_view key, std::string_view value, Deadline deadline) = 0;

  // Blocks until rank `owner` has put `key`. Throws TIMEOUT, which names the key.
  virtual std::string get(std::string_view key, int32_t owner, Deadline deadline) = 0;
};

}  // namespace dsc
