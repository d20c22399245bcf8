// A subset of a group's members, as a bit set that can be copied to shared memory.
#pragma once

#include <cstdint>
#include <vector>

namespace dsc {

class MemberSet {
 public:
  static constexpr size_t words_for(int size) noexcept { return (static_cast<size_t>(size) + 63) / 64; }

  explicit MemberSet(int size) : words_(words_for(size)) {}

  bool contains(int member) const noexcept { return (words_[word_of(member)] >> (member & 63) & 1) != 0; }
  void insert(int member) noexcept { words_[word_of(member)] |= uint64_t{1} << (member & 63); }
  bool empty() const noexcept {
    for (const uint64_t word : words_)
      if (word != 0) return false;
    return true;
  }
  std::vector<int32_t> list(int size) const {
    std::vector<int32_t> members;
    for (int member = 0; member < size; ++member)
      if (contains(member)) members.push_back(member);
    return members;
  }
  bool operator==(const MemberSet&) const = default;

  uint64_t* words() noexcept { return words_.data(); }
  const uint64_t* words() const noexcept { return words_.data(); }

 private:
  static size_t word_of(int member) noexcept { return static_cast<size_t>(member) / 64; }

  std::vector<uint64_t> words_;
};

}  // namespace dsc
