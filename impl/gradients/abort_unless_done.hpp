// If an error occurs at the end of an iteration, the iteration must fail on all ranks. The contents of
// buckets or shards are then undefined, and no rank may use them.
#pragma once

#include <utility>

namespace dsc {

// The destructor calls `abort` unless done() was called.
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
