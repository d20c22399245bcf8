// Counters from which ranks take chunks of work in one epoch, or in one message. Each counter word holds the
// epoch or the message's sequence number, so that it never has to be reset.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace dsc {

// From this size of a block, ranks that would only wait take a part of the copies.
inline constexpr size_t kMinSharedCopyBytes = size_t{256} << 10;

inline constexpr int kChunkBits = 24;
inline constexpr uint64_t kChunkMask = (uint64_t{1} << kChunkBits) - 1;
inline constexpr uint64_t kMaxChunks = kChunkMask;
inline constexpr uint64_t kNoChunk = ~uint64_t{0};
inline constexpr uint64_t kEpochMask =
    ~uint64_t{0} >> kChunkBits;  // the epoch may wrap around, because only neighboring epochs are compared

inline uint64_t chunk_word(uint64_t epoch, uint64_t chunks) noexcept { return epoch << kChunkBits | chunks; }

// Takes the next free chunk and returns its number, or kNoChunk if none is left.
inline uint64_t claim_chunk(std::atomic<uint64_t>& word, uint64_t epoch, uint64_t chunks) noexcept {
  uint64_t seen = word.load(std::memory_order_relaxed);
  for (;;) {
    const uint64_t next = seen >> kChunkBits == (epoch & kEpochMask) ? seen & kChunkMask : 0;
    if (next >= chunks) return kNoChunk;
    if (word.compare_exchange_weak(seen, chunk_word(epoch, next + 1), std::memory_order_acq_rel,
                                   std::memory_order_relaxed))
      return next;
  }
}

// Adds finished chunks; true for the rank that adds the last of all chunks.
inline bool complete_chunks(std::atomic<uint64_t>& word, uint64_t epoch, uint64_t finished,
                            uint64_t chunks) noexcept {
  uint64_t seen = word.load(std::memory_order_relaxed);
  for (;;) {
    const uint64_t before = seen >> kChunkBits == (epoch & kEpochMask) ? seen & kChunkMask : 0;
    if (word.compare_exchange_weak(seen, chunk_word(epoch, before + finished), std::memory_order_seq_cst,
                                   std::memory_order_relaxed))
      return before + finished == chunks;
  }
}

inline bool chunks_complete(const std::atomic<uint64_t>& word, uint64_t epoch, uint64_t chunks) noexcept {
  return word.load(std::memory_order_acquire) == chunk_word(epoch, chunks);
}

}  // namespace dsc
