// The memory that the ranks of one communicator share, and how they find it: an abstract socket of the host,
// over which a memfd is sent. Both are gone with the last process.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace fake_gpu {

inline constexpr size_t kRingBytes = 128 * 1024;

// What a rank says of itself as it comes.
struct Arrival {
  int world_rank = 0;
  int card = 0;
  int color = 0, key = 0;
  uint64_t host = 0;
};

struct alignas(64) Seat {
  std::atomic<uint32_t> present;
  std::atomic<uint32_t> bell;  // grows with whatever this rank may wait for
  std::atomic<uint32_t> sleeping;
  std::atomic<uint32_t> steps;  // barriers that it has come to
  Arrival arrival;
};

// Bytes from one rank to another.
struct alignas(64) Ring {
  std::atomic<uint64_t> written;
  std::atomic<uint32_t> lost;  // what was not taken never is
  alignas(64) std::atomic<uint64_t> taken;
  alignas(64) char bytes[kRingBytes];
};

class Region {
 public:
  Region(int descriptor, int ranks, int rank, bool with_rings);  // maps it, closes the descriptor
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  static size_t bytes(int ranks, bool with_rings);
  Seat& seat(int rank) const;
  Ring& ring(int from, int to) const;
  int ranks() const { return ranks_; }
  int rank() const { return rank_; }

  void ring_bell(int rank) const;
  void lose_what_is_under_way() const;  // from this rank
  uint32_t heard() const { return seat(rank_).bell.load(); }
  void sleep_unless_rung(uint32_t heard) const;
  // Until all ranks came to as many barriers.
  bool barrier(const std::function<bool()>& stopped) const;

 private:
  void* memory_;
  int ranks_, rank_;
  bool with_rings_;
};

// The region of a name once all ranks have come to it; null when stopped before.
std::shared_ptr<Region> meet(const std::string& name, int ranks, int rank, bool with_rings,
                             const Arrival& arrival, const std::function<bool()>& stopped);

std::string derived_name(const std::string& name);  // short, whatever the length
uint64_t hash_of(const std::string& text);

}  // namespace fake_gpu
