// The memory that the ranks of one communicator share, and how ranks find it: a memfd is sent over an
// abstract socket of the host. Both disappear with the last process.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace fake_gpu {

inline constexpr size_t kRingBytes = 128 * 1024;

// What a rank announces when it arrives.
struct Arrival {
  int world_rank = 0;
  int card = 0;
  int color = 0, key = 0;
  uint64_t host = 0;
};

struct alignas(64) Seat {
  std::atomic<uint32_t> present;
  std::atomic<uint32_t> bell;  // incremented by everything that this rank may wait for
  std::atomic<uint32_t> sleeping;
  std::atomic<uint32_t> steps;  // the number of barriers that it has reached
  Arrival arrival;
};

// Bytes from one rank to another.
struct alignas(64) Ring {
  std::atomic<uint64_t> written;
  std::atomic<uint32_t> lost;  // bytes that were not taken are lost
  alignas(64) std::atomic<uint64_t> taken;
  alignas(64) char bytes[kRingBytes];
};

class Region {
 public:
  Region(int descriptor, int ranks, int rank, bool with_rings);  // maps the memory and closes the descriptor
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  static size_t bytes(int ranks, bool with_rings);
  Seat& seat(int rank) const;
  Ring& ring(int from, int to) const;
  int ranks() const { return ranks_; }
  int rank() const { return rank_; }

  void ring_bell(int rank) const;
  void lose_what_is_under_way() const;  // bytes that this rank has sent
  uint32_t heard() const { return seat(rank_).bell.load(); }
  void sleep_unless_rung(uint32_t heard) const;
  // Waits until all ranks have reached the same number of barriers.
  bool barrier(const std::function<bool()>& stopped) const;

 private:
  void* memory_;
  int ranks_, rank_;
  bool with_rings_;
};

// Returns the region of a name after all ranks have arrived. Returns null if `stopped` is true before.
std::shared_ptr<Region> meet(const std::string& name, int ranks, int rank, bool with_rings,
                             const Arrival& arrival, const std::function<bool()>& stopped);

std::string derived_name(const std::string& name);  // always short, for a name of any length
uint64_t hash_of(const std::string& text);

}  // namespace fake_gpu
