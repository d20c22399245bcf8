// Keys with their values, and what the operations of a store do to them. Pure: no locks, no waiting.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "store/request.hpp"

namespace dsc {

struct StoreLimits {
  size_t key_bytes = 1024;
  size_t value_bytes = size_t{1} << 20;
  size_t keys = kMostRequestKeys;
  size_t total_bytes = size_t{64} << 20;  // of all keys and values
};

// Whether a request makes sense by itself: INVALID_ARG if it has no key, too many, or one that is too long.
void check_request(const StoreRequest& request, const StoreLimits& limits);

// A key, or a part of it, as a message shows it.
std::string shown(std::string_view key);

class KeyTable {
 public:
  explicit KeyTable(StoreLimits limits = {}) : limits_(limits) {}

  // Carries out a request; nothing if it has to wait for missing(). Throws INVALID_ARG (no or too many keys,
  // a key or value that is too long, a number where there is none), OVERFLOW, NOSPACE. What throws changes
  // nothing.
  std::optional<StoreReply> apply(const StoreRequest& request);

  // The number of a key of the request that is not there, looked for from `start` on and then before it;
  // nothing if all are there. Who goes on where he stopped looks at each key about twice, however often he is
  // woken.
  std::optional<size_t> first_missing(const StoreRequest& request, size_t start = 0) const;

  // All keys of a request that are not there.
  std::vector<std::string> missing(const StoreRequest& request) const;

  // The value, or null.
  const std::string* find(std::string_view key) const;

  // As kSet and kRemove.
  void set(const std::string& key, std::string value);
  bool remove(const std::string& key);

  void clear();
  size_t size() const { return values_.size(); }
  size_t bytes() const { return bytes_; }

  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  bool lacks(const StoreRequest& request, const std::string& key) const;
  void check_room(const std::string& key, size_t value_bytes, size_t total_bytes) const;
  int64_t add(const std::string& key, int64_t number);
  std::string compare_set(const StoreRequest& request);
  size_t append(const std::string& key, const std::string& value);

  const StoreLimits limits_;
  std::unordered_map<std::string, std::string, Hash, std::equal_to<>> values_;
  size_t bytes_ = 0;
};

}  // namespace dsc
