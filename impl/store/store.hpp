// A map that all ranks share. Keys have 1 to 1,024 bytes, and values up to 1 MiB. The semantics are those of
// PyTorch 2.7's Store.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "store/exchange.hpp"
#include "store/request.hpp"

namespace dsc {

// Any thread may call any function. Every call returns by its deadline, or within two seconds after it if a
// server or the process that locks a file has stopped. TIMEOUT lists the missing keys.
class Store : public Exchange {
 public:
  // Executes one request. Throws what KeyTable::apply() throws, and errors of the connection or file.
  virtual StoreReply perform(const StoreRequest& request, Deadline deadline) = 0;

  void set(std::string_view key, std::string_view value, Deadline deadline);
  std::string get(std::string_view key, Deadline deadline);
  int64_t add(std::string_view key, int64_t number, Deadline deadline);
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                          Deadline deadline);
  size_t append(std::string_view key, std::string_view value, Deadline deadline);
  bool check(std::span<const std::string> keys, Deadline deadline);
  void wait(std::span<const std::string> keys, Deadline deadline);
  bool remove(std::string_view key, Deadline deadline);
  size_t count(Deadline deadline);
  // Blocks until something is appended to the key after its first `from` bytes, and returns it.
  std::string follow(std::string_view key, size_t from, Deadline deadline);

  // These implement Exchange. They ignore which rank owns a key.
  void put(std::string_view key, std::string_view value, Deadline deadline) final;
  std::string get(std::string_view key, int32_t owner, Deadline deadline) final;
};

// Throws TIMEOUT with the names of the keys.
[[noreturn]] void fail_missing(const std::vector<std::string>& missing);

}  // namespace dsc
