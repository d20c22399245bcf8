// The record of an error: one structure from the code that detects it to dsc_error_info_t. The same structure
// is used in shared memory and between hosts.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <type_traits>

#include "base/fixed_text.hpp"
#include "dsc/types.h"

namespace dsc {

inline constexpr int kNoRank = -1;

constexpr bool is_error(dsc_result_t code) noexcept { return code < DSC_OK && code >= DSC_ERR_INTERNAL; }

// At most 64 ranks in fixed storage; it keeps the first ones.
class RankList {
 public:
  static constexpr size_t kMost = 64;

  RankList() = default;
  RankList(std::initializer_list<int32_t> ranks) noexcept
      : RankList(std::span(ranks.begin(), ranks.size())) {}
  template <std::convertible_to<std::span<const int32_t>> Ranks>
  RankList(const Ranks& ranks) noexcept {
    for (const int32_t rank : std::span<const int32_t>(ranks)) push_back(rank);
  }

  // Bounds a list that another process may have written.
  void bound() noexcept { count_ = std::clamp(count_, 0, static_cast<int32_t>(kMost)); }
  // The same for ranks of a group of `size`: others are removed.
  void bound_to(int32_t size) noexcept {
    bound();
    count_ = static_cast<int32_t>(
        std::remove_if(begin(), end(), [size](int32_t rank) { return rank < 0 || rank >= size; }) - begin());
  }

  void push_back(int32_t rank) noexcept {
    if (size() < kMost) ranks_[count_++] = rank;
  }

  bool empty() const noexcept { return count_ == 0; }
  size_t size() const noexcept { return static_cast<size_t>(count_); }
  int32_t* begin() noexcept { return ranks_; }
  int32_t* end() noexcept { return ranks_ + count_; }
  const int32_t* begin() const noexcept { return ranks_; }
  const int32_t* end() const noexcept { return ranks_ + count_; }
  bool operator==(const RankList& other) const noexcept { return std::ranges::equal(*this, other); }

 private:
  int32_t count_ = 0;
  int32_t ranks_[kMost] = {};
};

// Why an operation, a group or a call failed. Copying and changing it needs no memory, so a failure can be
// reported even when memory is short. The record is large. On the path of a small operation, an optional
// failure is therefore initialised with std::nullopt: GCC 12 clears the storage of an optional that is
// default-initialised.
struct Failure {
  uint64_t group = 0;
  uint64_t sequence = 0;  // sequence number of the operation in the group, from 1; 0 if there is none
  uint64_t index = 0;     // index of the non-finite element, with NONFINITE
  int64_t elapsed_ns = 0;
  dsc_result_t code = DSC_OK;
  int32_t system_error = 0;  // errno value
  int32_t native_code = 0;   // error code of a backend
  RankList ranks;            // ranks at fault
  FixedText<32> operation;
  FixedText<32> group_name;
  FixedText<512> text;
  bool revoked = false;  // the group no longer works
  // The ranks are those of the program's communicator, not those of the internal group or connections in
  // which the failure was found.
  bool has_user_ranks = false;
  bool is_published = false;  // the communicator of the program has failed, and all its hosts learn of it
  char unused[5] = {};        // no hidden bytes: the record is sent as it is in memory

  void set_group(uint64_t id, std::string_view name) noexcept {
    group = id;
    group_name = name;
  }

  // The first rank at fault.
  int32_t rank() const noexcept { return ranks.empty() ? kNoRank : *ranks.begin(); }

  // Bounds a record that another process may have written. A code that does not exist becomes PROTOCOL.
  void bound() noexcept {
    if (code != DSC_OK && !is_error(code)) code = DSC_ERR_PROTOCOL;
    for (bool* flag : {&revoked, &has_user_ranks, &is_published}) {
      unsigned char byte;
      std::memcpy(&byte, flag, sizeof byte);
      *flag = byte != 0;
    }
    ranks.bound();
    operation.bound();
    group_name.bound();
    text.bound();
  }
};
static_assert(std::is_trivially_copyable_v<Failure> && std::has_unique_object_representations_v<Failure>);

// Returns whether a failure concerns all ranks of a group and keeps its code on all of them. After any other
// failure, ranks that did not cause it get REVOKED.
constexpr bool is_group_fatal(dsc_result_t code) noexcept {
  return code == DSC_ERR_TIMEOUT || code == DSC_ERR_CALLBACK ||
         (code <= DSC_ERR_PEER_DEAD && code >= DSC_ERR_MISMATCH);
}

}  // namespace dsc
