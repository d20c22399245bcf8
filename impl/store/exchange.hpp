// The minimal interface with which ranks find each other. Every start-up system can provide it: PMIx,
// callbacks of a program, or any store.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.hpp"

namespace dsc {

class Exchange {
 public:
  virtual ~Exchange() = default;

  // Publishes `value` under `key` to the other ranks. Each key is put once, by one rank. After a TIMEOUT the
  // same rank may put the same value again.
  virtual void put(std::string_view key, std::string_view value, Deadline deadline) = 0;

  // Blocks until rank `owner` has put `key`. Throws TIMEOUT with the name of the key.
  virtual std::string get(std::string_view key, int32_t owner, Deadline deadline) = 0;
};

}  // namespace dsc
