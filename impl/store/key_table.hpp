// The keys and values of a store, and the semantics of its operations. The table has no lock and never waits.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "store/request.hpp"

namespace dsc {

// Limits that bound the memory used by a store.
struct StoreLimits {
  size_t key_bytes = 1024;
  size_t value_bytes = size_t{1} << 20;
  size_t keys = kMostRequestKeys;
  size_t total_bytes = size_t{64} << 20;  // of all keys and values together
};

// Throws INVALID_ARG if a request is malformed: it has no key, too many keys, or a key that is too long.
void check_request(const StoreRequest& request, const StoreLimits& limits);

// Returns a key in printable form for messages. A long key is cut.
std::string shown(std::string_view key);

// May be used by one thread at a time.
class KeyTable {
 public:
  explicit KeyTable(StoreLimits limits = {}) : limits_(limits) {}

  // Executes a request. Returns nullopt if the request has to wait for missing keys. Throws INVALID_ARG if it
  // has no key, too many keys, a key or value that is too long, or a value that is not a number. Throws
  // OVERFLOW, NOSPACE. If it throws, the table is unchanged.
  std::optional<StoreReply> apply(const StoreRequest& request);

  // Returns the index of a missing key of the request, or nullopt if all keys are present. Searches from
  // `start` to the end and then from the beginning. If a waiting request always continues at the returned
  // index, it examines each key about twice in total, no matter how often it is woken.
  std::optional<size_t> first_missing(const StoreRequest& request, size_t start = 0) const;

  // Returns all keys of a request that are missing.
  std::vector<std::string> missing(const StoreRequest& request) const;

  // Returns the value of a key, or null.
  const std::string* find(std::string_view key) const;

  // These do the same as kSet and kRemove.
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
