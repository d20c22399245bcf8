// One value per member of a group. Groups with few members need no allocation.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

namespace dsc {

template <typename Value>
class PerMember {
 public:
  // If the values have a trivial type, they are not initialized, so they must be set before they are read.
  explicit PerMember(size_t size) : size_(size) {
    if (size > kFew) many_ = std::make_unique<Value[]>(size);
  }

  size_t size() const noexcept { return size_; }
  const Value* begin() const noexcept { return data(); }
  const Value* end() const noexcept { return data() + size_; }
  bool empty() const noexcept { return size_ == 0; }
  Value* data() noexcept { return many_ ? many_.get() : few_.data(); }
  const Value* data() const noexcept { return many_ ? many_.get() : few_.data(); }
  Value& operator[](size_t member) noexcept { return data()[member]; }
  const Value& operator[](size_t member) const noexcept { return data()[member]; }

 private:
  static constexpr size_t kFew = 16;

  const size_t size_;
  std::array<Value, kFew> few_;
  std::unique_ptr<Value[]> many_;
};

}  // namespace dsc
