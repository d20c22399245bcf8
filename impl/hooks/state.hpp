// The bytes in which hooks save what they remember.
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace dsc {

class StateWriter {
 public:
  explicit StateWriter(const std::string& hook) { text(hook); }

  void number(uint64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void text(const std::string& value) {
    number(value.size());
    bytes_ += value;
  }
  void floats(std::span<const float> values) {
    number(values.size());
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Throws INVALID_ARG where the bytes end early, or are of another hook.
class StateReader {
 public:
  StateReader(std::span<const std::byte> bytes, const std::string& hook) : bytes_(bytes), hook_(hook) {
    const std::string found = text();
    if (found != hook)
      fail(DSC_ERR_INVALID_ARG, "the state is of hook %s, expected one of %s", found.c_str(), hook.c_str());
  }

  uint64_t number() {
    uint64_t value = 0;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  // A number of items that take at least eight bytes each.
  uint64_t items() {
    const uint64_t count = number();
    if (count > bytes_.size() / sizeof(uint64_t)) complain();
    return count;
  }
  std::string text() {
    const uint64_t size = number();
    return {reinterpret_cast<const char*>(take(size)), size};
  }
  std::vector<float> floats() {
    const uint64_t count = number();
    if (count > bytes_.size() / sizeof(float)) complain();
    std::vector<float> values(count);
    if (count > 0) std::memcpy(values.data(), take(count * sizeof(float)), count * sizeof(float));
    return values;
  }
  void end() const {
    if (!bytes_.empty()) complain();
  }

 private:
  const std::byte* take(uint64_t size) {
    if (size > bytes_.size()) complain();
    const std::byte* at = bytes_.data();
    bytes_ = bytes_.subspan(size);
    return at;
  }
  [[noreturn]] void complain() const {
    fail(DSC_ERR_INVALID_ARG, "the state of hook %s is damaged: its length does not fit what it says",
         hook_.c_str());
  }

  std::span<const std::byte> bytes_;
  const std::string hook_;
};

// Throws INVALID_ARG if a state has another number of buckets; one that was saved before the first iteration
// has none.
inline void expect_buckets(const std::string& hook, size_t saved, size_t buckets) {
  if (saved > buckets)
    fail(DSC_ERR_INVALID_ARG, "the state of hook %s has %zu buckets, expected %zu", hook.c_str(), saved,
         buckets);
}

}  // namespace dsc
