// Means of encoded gradients by two exchanges. The buffer is divided into one chunk per rank: every rank
// sends its encoded chunks to their owners (all-to-all), who decode them, sum in rank order in f32, divide
// and encode the mean, which all ranks gather and decode. All ranks so decode the same bytes.
#pragma once

#include <memory>
#include <span>

#include "hooks/builtin.hpp"

namespace dsc {

// A way to write f32 numbers in fewer bytes.
class Codec {
 public:
  virtual ~Codec() = default;

  // A chunk of a bucket for so many ranks has a multiple of so many elements.
  virtual size_t alignment(size_t ranks) const = 0;
  virtual size_t bytes(size_t count) const = 0;

  // Encodes `parts` equal parts one after another. If `error` is not empty it has as many elements as
  // values: it is added to them first, and then holds what the code does not.
  virtual void encode(std::span<const float> values, std::span<float> error, size_t parts,
                      std::span<std::byte> out) const = 0;
  // Computes out = decoded, or adds that.
  virtual void decode(std::span<const std::byte> in, std::span<float> out, bool adds) const = 0;
};

std::shared_ptr<BucketHook> make_two_phase_hook(const std::string& name, std::unique_ptr<Codec> codec,
                                                bool error_feedback);

}  // namespace dsc
