// Memory that all ranks of the floor share: their buffers, and the marks by which they wait for each other.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <new>
#include <stdexcept>

#include "harness.hpp"
#include "meeting.hpp"

namespace bench {

class FloorMemory {
 public:
  static constexpr size_t stage_elements = 16 << 10;  // inputs up to 64 KiB may be copied to the stage

  FloorMemory(const Job& job, int rank)
      : rank_(rank), ranks_(static_cast<size_t>(job.ranks)), waiting_(job.ranks) {
    const Shape largest(job.op, job.bytes, root, job.ranks);
    staged_beside_mark_ = largest.in <= std::size(Post{}.staged);
    region_bytes_ = sizeof(Head) + pages(largest.in * sizeof(float)) + pages(largest.out * sizeof(float));
    base_ = static_cast<char*>(map_shared(job.meeting_path, Meeting::file_bytes, ranks_ * region_bytes_));
  }
  ~FloorMemory() { munmap(base_, ranks_ * region_bytes_); }
  FloorMemory(const FloorMemory&) = delete;
  FloorMemory& operator=(const FloorMemory&) = delete;

  // Returns a buffer. All ranks allocate the same buffers in the same order.
  float* allocate(size_t elements) {
    const size_t start = used_;
    used_ += pages(elements * sizeof(float));
    if (used_ > region_bytes_) throw std::bad_alloc();
    return reinterpret_cast<float*>(region(rank_) + start);
  }

  // Returns another rank's buffer that corresponds to a buffer of this rank.
  float* of_rank(float* own, int rank) const {
    return reinterpret_cast<float*>(region(rank) + (reinterpret_cast<char*>(own) - region(rank_)));
  }

  // Returns where a rank stages its input in its n-th operation.
  float* stage(int rank, uint32_t n) const {
    Head* const h = head(rank);
    return staged_beside_mark_ ? h->posts[n % 2].staged : h->staged;
  }

  // A rank that looks at a mark before it is set takes the line away from the rank that is about to set it.
  // With `late`, ranks look once, and then not before a line can have moved to another core and back.
  void set_late_looks(bool late) { looks_late_ = late; }

  // Tells the other ranks that this rank has started its n-th operation, and that its input is complete. Then
  // gets the line of the next mark, which other ranks still have, so that the next mark need not wait for it.
  void set_arrived(uint32_t n) const {
    head(rank_)->posts[n % 2].arrived.store(n, std::memory_order_release);
    own_line(&head(rank_)->posts[(n + 1) % 2]);
  }
  void wait_arrived(int rank, uint32_t n) const { wait(head(rank)->posts[n % 2].arrived, n); }

  // Tells the other ranks that this rank has written all that it writes in the n-th operation.
  void set_done(uint32_t n) const { head(rank_)->done.store(n, std::memory_order_release); }
  void wait_done(int rank, uint32_t n) const { wait(head(rank)->done, n); }

 private:
  static constexpr size_t page = 4096;
  static constexpr std::chrono::nanoseconds line_transfer{200};

  // A mark, and a few elements in the same cache line, so that other ranks need only this line.
  struct alignas(128) Post {  // processors prefetch lines in pairs
    std::atomic<uint32_t> arrived;
    alignas(16) float staged[12];
  };

  struct alignas(page) Head {
    Post posts[2];  // of operations with even and odd numbers
    alignas(128) std::atomic<uint32_t> done;
    alignas(128) float staged[stage_elements];
  };
  static_assert(std::atomic<uint32_t>::is_always_lock_free, "the marks are shared between processes");

  static void own_line(const void* line) {
#if defined(__x86_64__)
    asm volatile("prefetchw (%0)" ::"r"(line));
#else
    __builtin_prefetch(line, 1);
#endif
  }

  static size_t pages(size_t bytes) { return (bytes + page - 1) / page * page; }
  char* region(int rank) const { return base_ + static_cast<size_t>(rank) * region_bytes_; }
  Head* head(int rank) const { return reinterpret_cast<Head*>(region(rank)); }

  void wait(const std::atomic<uint32_t>& mark, uint32_t n) const {
    const auto is_set = [&] { return static_cast<int32_t>(mark.load(std::memory_order_acquire) - n) >= 0; };
    if (is_set()) return;
    using Clock = std::chrono::steady_clock;
    if (looks_late_)
      for (const auto later = Clock::now() + line_transfer; Clock::now() < later;) {
      }
    waiting_.until(is_set);
  }

  int rank_;
  size_t ranks_;
  Waiting waiting_;
  bool staged_beside_mark_ = false;
  bool looks_late_ = false;
  size_t region_bytes_ = 0;
  size_t used_ = sizeof(Head);
  char* base_ = nullptr;
};

}  // namespace bench
