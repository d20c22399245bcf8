// The record of an error. The same structure is used by the code that detects the error, in shared memory and
// between hosts; dsc_error_info_t is filled from it.
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

// A list of at most 64 ranks in fixed storage. Ranks that do not fit are dropped.
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

  // Corrects the length if it is invalid, because another process may have written the list.
  void bound() noexcept { count_ = std::clamp(count_, 0, static_cast<int32_t>(kMost)); }
  // Like bound(), and also removes ranks outside a group of `size` ranks.
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

// Why an operation, a group or a call failed. The record can be copied and changed without allocating, so a
// failure can be reported even when memory is short. The record is large. On the path of a small operation,
// an optional failure is therefore initialized with std::nullopt, because GCC 12 clears the whole storage of
// a default-initialized optional.
struct Failure {
  uint64_t group = 0;
  uint64_t sequence = 0;  // sequence number of the operation in the group, from 1; 0 if there is none
  uint64_t index = 0;     // with NONFINITE: index of the first non-finite element
  int64_t elapsed_ns = 0;
  dsc_result_t code = DSC_OK;
  int32_t system_error = 0;  // errno value
  int32_t native_code = 0;   // error code of a backend
  RankList ranks;            // ranks at fault
  FixedText<32> operation;
  FixedText<32> group_name;
  FixedText<512> text;
  bool revoked = false;  // the group no longer works, so all its later operations fail
  // The ranks are numbered as in the program's communicator, not as in the internal group or connection in
  // which the failure was found.
  bool has_user_ranks = false;
  bool is_published = false;  // the failure concerns the program's communicator and is sent to all its hosts
  char unused[5] = {};  // explicit padding without hidden bytes, because the record is sent byte by byte

  void set_group(uint64_t id, std::string_view name) noexcept {
    group = id;
    group_name = name;
  }

  // The first rank at fault.
  int32_t rank() const noexcept { return ranks.empty() ? kNoRank : *ranks.begin(); }

  // Corrects invalid fields, because another process may have written the record. An unknown code becomes
  // PROTOCOL.
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

// Returns whether a failure concerns all ranks of a group, so that all of them get its code. After any other
// failure, ranks that did not cause it get REVOKED.
constexpr bool is_group_fatal(dsc_result_t code) noexcept {
  return code == DSC_ERR_TIMEOUT || code == DSC_ERR_CALLBACK ||
         (code <= DSC_ERR_PEER_DEAD && code >= DSC_ERR_MISMATCH);
}

}  // namespace dsc
