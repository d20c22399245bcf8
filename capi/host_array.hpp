// Array arguments, including arrays that must be in host memory.
#pragma once

#include "checks.hpp"
#include "comm/comm.hpp"

namespace dsc {

// An argument that is an array.
struct Array {
  const char* name;
  const void* data;
  size_t bytes;
};

inline void check_layout(const Array& array, size_t element_bytes) {
  check_buffer(array.name, array.data, array.bytes);
  if (reinterpret_cast<uintptr_t>(array.data) % element_bytes != 0)
    fail(DSC_ERR_INVALID_ARG, "%s is at %p, expected an address that is a multiple of %zu", array.name,
         array.data, element_bytes);
}

// Finds out whether the arrays of a call are in host memory or in device memory. Empty arrays are ignored,
// because their address may belong to other memory.
class ArrayKind {
 public:
  explicit ArrayKind(const Comm& comm) noexcept : comm_(comm) {}

  // Throws INVALID_ARG if the array is in memory of another device, or in another kind of memory than the
  // arrays before it.
  void add(const Array& array) {
    if (array.bytes == 0) return;
    const int found = comm_.device_of(array.data);
    if (found >= 0 && found != comm_.device())
      fail(DSC_ERR_INVALID_ARG, "%s is in memory of device %d, but this world is bound to device %d",
           array.name, found, comm_.device());
    const auto kind = [](int device) { return device < 0 ? "host memory" : "device memory"; };
    if (first_.data && found != device_)
      fail(DSC_ERR_INVALID_ARG, "%s is in %s and %s is in %s, expected the same kind of memory", first_.name,
           kind(device_), array.name, kind(found));
    if (!first_.data) first_ = array, device_ = found;
  }

  // Returns whether the arrays are in device memory. If all arrays are empty, a given stream means device
  // memory.
  bool is_on_device(const void* stream) const noexcept {
    return first_.data ? device_ >= 0 : stream != nullptr;
  }
  const void* first() const noexcept { return first_.data; }  // null if all arrays are empty

 private:
  const Comm& comm_;
  Array first_{};
  int device_ = -1;
};

inline void check_array(const Comm& comm, const Array& array, size_t element_bytes) {
  check_layout(array, element_bytes);
  const int found = array.data ? comm.device_of(array.data) : -1;
  if (found >= 0)
    fail(DSC_ERR_UNSUPPORTED, "%s is in memory of device %d, expected host memory", array.name, found);
}

inline void check_apart(const Array& one, const Array& other) {
  if (overlap(one.data, one.bytes, other.data, other.bytes))
    fail(DSC_ERR_INVALID_ARG, "%s and %s overlap, expected separate memory", one.name, other.name);
}

}  // namespace dsc
