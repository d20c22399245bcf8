// Reads the memory of other processes of this host. The kernel copies the data once, and the owner of the
// memory does not take part (process_vm_readv).
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace dsc {

// A word in the private memory of a process. Whoever finds `value` at `address` reads the memory of that
// process.
struct MemoryProbe {
  uint64_t address;
  uint64_t value;
};

// The parts of one read. The kernel gets them in one call, together with the probe.
class PeerRead {
 public:
  bool full() const noexcept { return parts_ == to_.size(); }
  bool empty() const noexcept { return parts_ == 1; }
  // `from` is an address of the other process. There must be space for one more part.
  void add(void* to, uint64_t from, size_t bytes) noexcept;

 private:
  friend class PeerMemory;
  static constexpr size_t kMostParts = 1 + 64;

  void clear() noexcept { parts_ = 1, bytes_ = 0; }

  size_t parts_ = 1;  // the first one is the probe
  size_t bytes_ = 0;  // of the other parts
  std::array<iovec, kMostParts> to_;
  std::array<iovec, kMostParts> from_;
};

// The memory of one process, which may be this process.
class PeerMemory {
 public:
  PeerMemory() = default;
  // Tries once whether this process may read the memory of the process of the pidfd. `pid` is the number of
  // the process, and `thread` that of a thread which lives as long as the process, as the process sees them.
  PeerMemory(int pidfd, int32_t pid, int32_t thread, const MemoryProbe& probe);

  bool readable() const noexcept { return why_not_.empty(); }
  // Returns why the memory cannot be read, or an empty text if it can.
  const std::string& why_not() const noexcept { return why_not_; }

  // Reads all parts, and empties the list. Returns false if the process has ended; the data is then
  // undefined. Throws SYSTEM if the memory is not mapped, or if the kernel refuses.
  bool read(PeerRead& parts) const;

 private:
  int64_t read_once(PeerRead& parts, uint64_t& found) const noexcept;

  void try_to_read();

  int32_t thread_ = 0;
  MemoryProbe probe_{0, 0};
  std::string why_not_ = "it was not tried";
};

// Returns true if other processes can read the first and the last byte of a buffer of this process. They
// cannot read memory of devices, for example, or of a process that has become undumpable (prctl).
bool others_can_read(const void* buffer, size_t bytes) noexcept;

}  // namespace dsc
