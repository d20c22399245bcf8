// If an error occurs while an iteration ends, the iteration fails on all ranks: after the error it is unknown
// what the buckets or shards hold, and no rank may use them.
#pragma once

#include <utility>

namespace dsc {

// Calls `abort` unless done() was called.
template <typename Abort>
class AbortUnlessDone {
 public:
  explicit AbortUnlessDone(Abort abort) : abort_(std::move(abort)) {}
  ~AbortUnlessDone() {
    if (!done_) abort_();
  }
  AbortUnlessDone(const AbortUnlessDone&) = delete;
  AbortUnlessDone& operator=(const AbortUnlessDone&) = delete;

  void done() noexcept { done_ = true; }

 private:
  const Abort abort_;
  bool done_ = false;
};

}  // namespace dsc
