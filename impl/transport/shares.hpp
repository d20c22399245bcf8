// Divides an array into one share for each host, and each share into pieces of the size of a slot.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/channel.hpp"

namespace dsc {

class Shares {
 public:
  // Divides evenly among all hosts except `without`, which gets no share. -1 means that every host gets one.
  Shares(int32_t hosts, size_t count, size_t element_bytes, int32_t without = -1)
      : element_bytes_(element_bytes) {
    const auto parts = static_cast<size_t>(hosts - (without >= 0 ? 1 : 0));
    size_t part = 0;
    for (int32_t host = 0; host < hosts; ++host) {
      const size_t share = host == without ? 0 : count / parts + (part < count % parts ? 1 : 0);
      part += host == without ? 0 : 1;
      add(share);
    }
  }
  Shares(std::span<const size_t> counts, size_t element_bytes) : element_bytes_(element_bytes) {
    for (const size_t count : counts) add(count);
  }

  size_t count(int32_t host) const { return counts_[static_cast<size_t>(host)]; }
  size_t start(int32_t host) const { return starts_[static_cast<size_t>(host)]; }

  uint64_t pieces(int32_t host) const { return (count(host) + piece_elements() - 1) / piece_elements(); }
  // Returns the offset of a piece from the start of its share, in elements.
  size_t piece_start(int32_t, uint64_t piece) const { return piece * piece_elements(); }
  size_t piece_count(int32_t host, uint64_t piece) const {
    return std::min(piece_elements(), count(host) - piece_start(host, piece));
  }

 private:
  size_t piece_elements() const { return TransportChannel::kSlotBytes / element_bytes_; }
  void add(size_t count) {
    starts_.push_back(starts_.empty() ? 0 : starts_.back() + counts_.back());
    counts_.push_back(count);
  }

  size_t element_bytes_;
  std::vector<size_t> starts_, counts_;
};

}  // namespace dsc
