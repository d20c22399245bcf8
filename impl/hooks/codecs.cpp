// Encodings of f32 gradients for two_phase.hpp: 8-bit or 4-bit integers, 8-bit floats, and signs.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "compress/blocks.hpp"
#include "compress/error_feedback.hpp"
#include "compress/onebit.hpp"
#include "compress/scaled_fp8.hpp"
#include "dtype/dtype.hpp"
#include "dtype/reduce.hpp"
#include "hooks/two_phase.hpp"

namespace dsc {
namespace {

constexpr std::array kBlockOptions{
    HookOption{"block", "256", 2, 1 << 20, true, "elements that have one scale"},
    HookOption{"error_feedback", "0", 0, 1, true,
               "1: what the code cannot hold is added in the next iteration"},
};
constexpr std::array kFp8Options{
    HookOption{"exponent_bits", "4", 4, 5, true, "4: e4m3, 5: e5m2"},
    HookOption{"block", "256", 2, 1 << 20, true, "elements that have one scale"},
    HookOption{"error_feedback", "0", 0, 1, true,
               "1: what the code cannot hold is added in the next iteration"},
};

std::span<uint8_t> as_bytes_of(std::span<std::byte> bytes) {
  return {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()};
}
std::span<const uint8_t> as_bytes_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

// An encoding with one scale per block of elements. The scales come first, followed by the elements.
class BlockCodec : public Codec {
 public:
  explicit BlockCodec(size_t block) : block_(block) {}

  size_t alignment(size_t) const override { return block_; }
  size_t bytes(size_t count) const override { return scales(count) * sizeof(float) + packed_bytes(count); }

  void encode(std::span<const float> values, std::span<float> error, size_t parts,
              std::span<std::byte> out) const override {
    const size_t part = values.size() / parts;
    std::vector<float> sent(error.empty() ? 0 : part);
    for (size_t p = 0; p < parts; ++p) {
      std::span<const float> from = values.subspan(p * part, part);
      const auto to = out.subspan(p * bytes(part), bytes(part));
      if (error.empty()) {
        pack(from, to);
        continue;
      }
      const auto own_error = error.subspan(p * part, part);
      add(DSC_DTYPE_F32, own_error.data(), from.data(), part);
      pack(own_error, to);
      decode(to, sent, false);
      keep_error(own_error.data(), sent.data(), part);
    }
  }

  void decode(std::span<const std::byte> in, std::span<float> out, bool adds) const override {
    std::vector<float> scale(scales(out.size()));
    std::memcpy(scale.data(), in.data(), scale.size() * sizeof(float));
    unpack(as_bytes_of(in.subspan(scale.size() * sizeof(float))), scale, out, adds);
  }

 protected:
  size_t block() const noexcept { return block_; }
  virtual size_t packed_bytes(size_t count) const = 0;
  virtual void pack_elements(std::span<const float> values, std::span<uint8_t> packed,
                             std::span<float> scales) const = 0;
  virtual void unpack(std::span<const uint8_t> packed, std::span<const float> scales, std::span<float> out,
                      bool adds) const = 0;

 private:
  size_t scales(size_t count) const noexcept { return (count + block_ - 1) / block_; }
  void pack(std::span<const float> values, std::span<std::byte> out) const {
    std::vector<float> scale(scales(values.size()));
    const size_t scale_bytes = scale.size() * sizeof(float);
    pack_elements(values, as_bytes_of(out.subspan(scale_bytes)), scale);
    std::memcpy(out.data(), scale.data(), scale_bytes);
  }

  const size_t block_;
};

class IntegerCodec final : public BlockCodec {
 public:
  IntegerCodec(int bits, size_t block) : BlockCodec(block), bits_(bits) {}

 protected:
  size_t packed_bytes(size_t count) const override { return block_bytes(bits_, count); }
  void pack_elements(std::span<const float> values, std::span<uint8_t> packed,
                     std::span<float> scales) const override {
    quantise_blocks(bits_, block(), values, packed, scales);
  }
  void unpack(std::span<const uint8_t> packed, std::span<const float> scales, std::span<float> out,
              bool adds) const override {
    dequantise_blocks(bits_, block(), packed, scales, out, adds);
  }

 private:
  const int bits_;
};

class Fp8Codec final : public BlockCodec {
 public:
  Fp8Codec(int32_t dtype, size_t block) : BlockCodec(block), dtype_(dtype) {}

 protected:
  size_t packed_bytes(size_t count) const override { return count; }
  // Scales are powers of two, so that scaling loses no precision.
  void pack_elements(std::span<const float> values, std::span<uint8_t> packed,
                     std::span<float> scales) const override {
    for (size_t b = 0, at = 0; at < values.size(); ++b, at += block()) {
      const size_t n = std::min(block(), values.size() - at);
      const auto part = values.subspan(at, n);
      const float most = max_magnitude(part);
      const float scale = std::isfinite(most) ? power_of_two(most) : 1;
      to_fp8(dtype_, part, scale, packed.subspan(at, n));
      scales[b] = std::isfinite(most) ? 1 / scale : std::numeric_limits<float>::quiet_NaN();
    }
  }
  void unpack(std::span<const uint8_t> packed, std::span<const float> scales, std::span<float> out,
              bool adds) const override {
    for (size_t b = 0, at = 0; at < out.size(); ++b, at += block()) {
      const size_t n = std::min(block(), out.size() - at);
      from_fp8(dtype_, packed.subspan(at, n), scales[b], out.subspan(at, n), adds);
    }
  }

 private:
  // Returns the largest power of two for which the scaled `most` does not exceed the largest finite number of
  // the type.
  float power_of_two(float most) const {
    constexpr int kMostExponent = 126;
    if (most == 0) return 1;
    const float largest = dtype_ == DSC_DTYPE_F8E4M3 ? 448.0F : 57344.0F;
    const int exponent = std::clamp(std::ilogb(largest) - std::ilogb(most), -kMostExponent, kMostExponent);
    const float scale = std::ldexp(1.0F, exponent);
    return most * scale > largest ? scale / 2 : scale;
  }

  const int32_t dtype_;
};

// The encoding by signs. As in DeepSpeed, there is one scale for all chunks of a rank, and one for the mean
// of a chunk.
class OnebitCodec final : public Codec {
 public:
  // A scale is computed from all elements including padding, so the padding must be the same as in DeepSpeed.
  size_t alignment(size_t ranks) const override { return onebit_padded(1, ranks) / ranks; }
  size_t bytes(size_t count) const override { return sizeof(float) + count / 8; }

  void encode(std::span<const float> values, std::span<float> error, size_t parts,
              std::span<std::byte> out) const override {
    std::vector<uint8_t> bits(values.size() / 8);
    const float scale = compress_signs(values, error, bits);
    if (!std::isfinite(scale)) std::ranges::fill(error, 0.0F);
    const size_t part = bits.size() / parts;
    for (size_t p = 0; p < parts; ++p) {
      std::byte* const to = out.data() + p * (sizeof scale + part);
      std::memcpy(to, &scale, sizeof scale);
      std::memcpy(to + sizeof scale, bits.data() + p * part, part);
    }
  }

  void decode(std::span<const std::byte> in, std::span<float> out, bool adds) const override {
    float scale = 0;
    std::memcpy(&scale, in.data(), sizeof scale);
    const auto bits = as_bytes_of(in.subspan(sizeof scale));
    if (adds) {
      add_signs(bits, scale, out);
    } else {
      expand_signs(bits, scale, out);
    }
  }
};

}  // namespace

std::span<const HookOption> block_options() { return kBlockOptions; }
std::span<const HookOption> fp8_options() { return kFp8Options; }

std::shared_ptr<BucketHook> make_block_hook(const HookMaking& making, const HookOptions& options, int bits) {
  const auto block = static_cast<size_t>(options.integer("block"));
  if (block % 2 != 0)
    fail(DSC_ERR_INVALID_ARG, "hook %s: option block is %zu, expected an even number", making.name.c_str(),
         block);
  return make_two_phase_hook(making.name, std::make_unique<IntegerCodec>(bits, block),
                             options.flag("error_feedback"));
}

std::shared_ptr<BucketHook> make_fp8_hook(const HookMaking& making, const HookOptions& options) {
  const int32_t dtype = options.integer("exponent_bits") == 4 ? DSC_DTYPE_F8E4M3 : DSC_DTYPE_F8E5M2;
  const auto block = static_cast<size_t>(options.integer("block"));
  return make_two_phase_hook(making.name, std::make_unique<Fp8Codec>(dtype, block),
                             options.flag("error_feedback"));
}

std::shared_ptr<BucketHook> make_onebit_hook(const HookMaking& making) {
  return make_two_phase_hook(making.name, std::make_unique<OnebitCodec>(), true);
}

}  // namespace dsc
