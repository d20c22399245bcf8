// The fatbin of the kernels as nvcc compiled them, or an empty one if libdsc was built without nvcc.
#include "device/kernels.hpp"

#if DSC_HAS_KERNELS
extern "C" const std::byte dsc_kernels_image[], dsc_kernels_image_end[];

namespace dsc {

std::span<const std::byte> kernels_image() noexcept { return {dsc_kernels_image, dsc_kernels_image_end}; }
bool has_kernels() noexcept { return true; }

}  // namespace dsc
#else
namespace dsc {
namespace {

// A fatbin that consists only of its header: magic, version, header size, and a content size of 0.
struct Fatbin {
  uint32_t magic = 0xba55ed50;
  uint16_t version = 1;
  uint16_t header_bytes = 16;
  uint64_t bytes = 0;
};
constexpr Fatbin kNoKernels;

}  // namespace

std::span<const std::byte> kernels_image() noexcept { return std::as_bytes(std::span(&kNoKernels, 1)); }
bool has_kernels() noexcept { return false; }

}  // namespace dsc
#endif
