// Arrays of a caller, and those that must be memory of the host.
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

// Returns whether an array is memory of the device that the communicator is bound to. Throws INVALID_ARG for
// memory of another device.
inline bool is_on_own_device(const Comm& comm, const Array& array) {
  const int found = array.data ? comm.device_of(array.data) : -1;
  if (found >= 0 && found != comm.device())
    fail(DSC_ERR_INVALID_ARG, "%s is memory of device %d, but this world is bound to device %d", array.name,
         found, comm.device());
  return found >= 0;
}

// Throws INVALID_ARG for two arrays of which one is memory of the host and the other of a device.
inline void expect_one_kind(const char* one, bool is_on_device, const char* other, bool other_is) {
  const auto kind = [](bool on_device) { return on_device ? "memory of a device" : "host memory"; };
  if (is_on_device != other_is)
    fail(DSC_ERR_INVALID_ARG, "%s is %s and %s is %s; expected both to be of one kind", one,
         kind(is_on_device), other, kind(other_is));
}

inline void check_array(const Comm& comm, const Array& array, size_t element_bytes) {
  check_layout(array, element_bytes);
  const int found = array.data ? comm.device_of(array.data) : -1;
  if (found >= 0)
    fail(DSC_ERR_UNSUPPORTED, "%s is memory of device %d, expected memory of the host", array.name, found);
}

inline void check_apart(const Array& one, const Array& other) {
  const auto a = reinterpret_cast<uintptr_t>(one.data), b = reinterpret_cast<uintptr_t>(other.data);
  if (one.bytes > 0 && other.bytes > 0 && a < b + other.bytes && b < a + one.bytes)
    fail(DSC_ERR_INVALID_ARG, "%s and %s overlap, expected separate memory", one.name, other.name);
}

}  // namespace dsc
