// All bucket sets of a reducer: the set of this iteration, the set that replaces it in the next iteration,
// and old sets of which the caller may still have views.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "reducer/bucket_set.hpp"
#include "reducer/rebuild.hpp"

namespace dsc {

// Only one thread at a time may use an object, except for rebuilds().
class BucketSets {
 public:
  BucketSets(std::shared_ptr<BucketSet> first, const Rebuilder& rebuilder)
      : first_layout_(first->layout), rebuilder_(rebuilder), current_(std::move(first)) {}

  const std::shared_ptr<BucketSet>& current() const noexcept { return current_; }
  const BucketLayout& first_layout() const noexcept { return first_layout_; }
  // Returns the buckets of the next iteration.
  BucketSet& next() const noexcept { return next_ ? *next_ : *current_; }
  const BucketLayout& next_layout() const noexcept { return next().layout; }

  // Returns the address of a gradient in its bucket; the caller may keep it. From now on the current buckets
  // are not rebuilt, and they exist as long as this object.
  void* view(size_t index) {
    pinned_ = true;
    viewed_.resize(current_->slots.size());
    viewed_[index] = true;
    if (!replaced_.empty()) replaced_[index] = false;
    return current_->slots[index].view;
  }
  // Returns true if the caller has a view of this gradient in earlier buckets, but none in the current ones.
  bool is_replaced(size_t index) const { return !replaced_.empty() && replaced_[index]; }
  bool pinned() const noexcept { return pinned_; }

  // advance() is called before each iteration. If a new set was proposed, it replaces the current one.
  bool has_next() const noexcept { return next_ != nullptr; }
  void advance() {
    if (!next_) return;
    if (pinned_) {
      retired_.push_back(current_);
      replaced_ = std::exchange(viewed_, {});
    }
    current_ = std::move(next_);
    pinned_ = false;
  }

  // Collective; same as Rebuilder::propose(). The caller passes the result to set_next().
  std::unique_ptr<BucketSet> propose(Comm& group, const ParamList& params, std::span<const size_t> order,
                                     bool pinned) {
    return rebuilder_.propose(group, params, *current_, order, pinned);
  }
  void set_next(std::unique_ptr<BucketSet> next) { next_ = std::move(next); }
  uint64_t rebuilds() const noexcept { return rebuilder_.count(); }

 private:
  const BucketLayout first_layout_;
  Rebuilder rebuilder_;
  std::shared_ptr<BucketSet> current_;
  std::unique_ptr<BucketSet> next_;
  bool pinned_ = false;         // the caller has views of the current buckets
  std::vector<bool> viewed_;    // gradients of which the caller has views; may be empty
  std::vector<bool> replaced_;  // results of is_replaced(); may be empty
  std::vector<std::shared_ptr<BucketSet>> retired_;
};

}  // namespace dsc
