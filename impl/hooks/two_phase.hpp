// Means of encoded gradients by two exchanges. The buffer is divided into one chunk per rank. Every rank
// sends its encoded chunks to their owners (all-to-all). The owners decode them, sum in rank order in f32,
// divide, and encode the mean, which all ranks gather and decode. So all ranks decode the same bytes.
#pragma once

#include <memory>
#include <span>

#include "hooks/builtin.hpp"

namespace dsc {

// A way to write f32 numbers in fewer bytes.
class Codec {
 public:
  virtual ~Codec() = default;

  // The number of elements of a chunk is a multiple of this if a bucket is divided among `ranks` ranks.
  virtual size_t alignment(size_t ranks) const = 0;
  virtual size_t bytes(size_t count) const = 0;

  // Encodes `parts` equal parts one after another. If `error` is not empty, it has as many elements as
  // `values`. It is first added to them, and then receives what the code loses.
  virtual void encode(std::span<const float> values, std::span<float> error, size_t parts,
                      std::span<std::byte> out) const = 0;
  // Computes out = decoded, or adds the decoded values to `out`.
  virtual void decode(std::span<const std::byte> in, std::span<float> out, bool adds) const = 0;
};

std::shared_ptr<BucketHook> make_two_phase_hook(const std::string& name, std::unique_ptr<Codec> codec,
                                                bool error_feedback);

}  // namespace dsc
