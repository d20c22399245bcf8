// Computes means of encoded gradients by two exchanges. The buffer is divided into one chunk per rank. In the
// first exchange (all-to-all), every rank sends each encoded chunk to its owner. The owner decodes the
// chunks, sums them in rank order in f32, divides, and encodes the mean. In the second exchange (all-gather),
// all ranks get and decode all means. All ranks therefore decode the same bytes.
#pragma once

#include <memory>
#include <span>

#include "hooks/builtin.hpp"

namespace dsc {

// An encoding of f32 numbers in fewer bytes.
class Codec {
 public:
  virtual ~Codec() = default;

  // Returns a number of elements. If a bucket is divided among `ranks` ranks, the size of a chunk must be a
  // multiple of it.
  virtual size_t alignment(size_t ranks) const = 0;
  virtual size_t bytes(size_t count) const = 0;

  // Encodes `parts` equal parts one after another. If `error` is not empty, it has as many elements as
  // `values`. It is added to the values before they are encoded, and then replaced by the error of the
  // encoding.
  virtual void encode(std::span<const float> values, std::span<float> error, size_t parts,
                      std::span<std::byte> out) const = 0;
  // Writes the decoded values to `out`, or adds them to `out` if `adds` is set.
  virtual void decode(std::span<const std::byte> in, std::span<float> out, bool adds) const = 0;
};

std::shared_ptr<BucketHook> make_two_phase_hook(const std::string& name, std::unique_ptr<Codec> codec,
                                                bool error_feedback);

}  // namespace dsc
