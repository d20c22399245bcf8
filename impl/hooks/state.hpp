// The format in which hooks save their state: a mark, the format number, the hook's name, the hook's data,
// and a checksum of all of this. Without the checksum, a changed byte could silently spoil the training.
#pragma once

#include <array>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "reducer/hook.hpp"

namespace dsc {

inline constexpr uint64_t kStateMark = 0x006b6f6f48637364;  // "dscHook" in the low bytes; the highest is 0
inline constexpr uint64_t kStateFormat = 2;

class StateWriter {
 public:
  explicit StateWriter(const std::string& hook) {
    number(kStateMark);
    number(kStateFormat);
    text(hook);
  }

  void number(uint64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void text(const std::string& value) {
    number(value.size());
    bytes_ += value;
  }
  void floats(std::span<const float> values) {
    number(values.size());
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  }
  std::string take() {
    number(fnv1a(bytes_));
    return std::move(bytes_);
  }

 private:
  std::string bytes_;
};

// Reads a saved state. Throws INVALID_ARG if the bytes have another format, are damaged, or belong to another
// hook.
class StateReader {
 public:
  StateReader(std::span<const std::byte> bytes, const std::string& hook) : bytes_(bytes), hook_(hook) {
    check_format();
    check_sum();
    const std::string found = text();
    if (found != hook)
      fail(DSC_ERR_INVALID_ARG, "the state belongs to hook %s, expected a state of hook %s", found.c_str(),
           hook.c_str());
  }

  uint64_t number() {
    uint64_t value = 0;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  // Reads the number of items. It is checked, because each item takes at least eight bytes.
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
  // Early drafts of the format had no mark; they began with the length of the hook's name.
  void check_format() {
    if (number() != kStateMark)
      fail(DSC_ERR_INVALID_ARG,
           "the state for hook %s does not start with the mark of format %llu: it is damaged, of an older "
           "version, or not the state of a hook; expected the bytes that were saved",
           hook_.c_str(), static_cast<unsigned long long>(kStateFormat));
    const uint64_t format = number();
    if (format != kStateFormat)
      fail(DSC_ERR_INVALID_ARG, "the state for hook %s has format %llu, expected %llu", hook_.c_str(),
           static_cast<unsigned long long>(format), static_cast<unsigned long long>(kStateFormat));
  }
  void check_sum() {
    constexpr size_t kBegin = 2 * sizeof(uint64_t);  // bytes that check_format() has read
    if (bytes_.size() < sizeof(uint64_t)) complain();
    const std::span<const std::byte> summed(bytes_.data() - kBegin,
                                            bytes_.size() + kBegin - sizeof(uint64_t));
    uint64_t expected = 0;
    std::memcpy(&expected, summed.data() + summed.size(), sizeof expected);
    if (fnv1a({reinterpret_cast<const char*>(summed.data()), summed.size()}) != expected)
      fail(DSC_ERR_INVALID_ARG,
           "the state of hook %s is damaged: its checksum is wrong; expected the bytes that were saved",
           hook_.c_str());
    bytes_ = bytes_.first(bytes_.size() - sizeof(uint64_t));
  }
  const std::byte* take(uint64_t size) {
    if (size > bytes_.size()) complain();
    const std::byte* at = bytes_.data();
    bytes_ = bytes_.subspan(size);
    return at;
  }
  [[noreturn]] void complain() const {
    fail(DSC_ERR_INVALID_ARG, "the state of hook %s is damaged: its length does not match its header",
         hook_.c_str());
  }

  std::span<const std::byte> bytes_;
  const std::string hook_;
};

// Throws INVALID_ARG if a state has too many buckets. A state that was saved before the first iteration has
// no buckets.
inline void expect_buckets(const std::string& hook, size_t saved, size_t buckets) {
  if (saved > buckets)
    fail(DSC_ERR_INVALID_ARG, "the state of hook %s has %zu buckets, expected at most %zu", hook.c_str(),
         saved, buckets);
}

// Returns a number that identifies the parameters of a bucket and their sizes. The number of elements of the
// saved error is not enough, because other parameters may have the same number of elements. Never returns 0.
inline uint64_t layout_of(const HookBucket& bucket) {
  uint64_t hash = kFnvStart;
  for (const size_t param : bucket.params) {
    const std::array<uint64_t, 2> one{param, bucket.tensors[param].count};
    hash = fnv1a({reinterpret_cast<const char*>(one.data()), sizeof one}, hash);
  }
  return hash | 1;
}

// Throws INVALID_ARG if a bucket's state belongs to other parameters. `saved` is 0 if nothing was saved for
// the bucket.
inline void expect_layout(const std::string& hook, uint64_t saved, const HookBucket& bucket) {
  if (saved != 0 && saved != layout_of(bucket))
    fail(DSC_ERR_INVALID_ARG,
         "the state of hook %s belongs to other parameters or other buckets: here bucket %zu has %zu "
         "parameters with %zu elements, but it had others when the state was saved",
         hook.c_str(), bucket.index, bucket.params.size(), bucket.count);
}

}  // namespace dsc
