// All try and catch blocks of the module. No exception of Gloo may leave the module: libdsc does not expect
// one, and on Gloo's thread it would terminate the process.
#pragma once

#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

#include <cxxabi.h>

#include "dsc/types.h"

namespace dsc::gloo_module {

// Returns a text of Gloo without the source location, such as "[FILE:LINE] ", at its start.
inline const char* without_location(const char* text) noexcept {
  const char* const end = *text == '[' ? std::strstr(text, "] ") : nullptr;
  return end ? end + 2 : text;
}

template <typename Body>
dsc_result_t guard(char* error, size_t error_bytes, Body&& body) {
  try {
    body();
    return DSC_OK;
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (const std::bad_alloc&) {
    std::snprintf(error, error_bytes, "out of memory");
    return DSC_ERR_NOMEM;
  } catch (const std::exception& thrown) {
    std::snprintf(error, error_bytes, "%s", without_location(thrown.what()));
  } catch (...) {
    std::snprintf(error, error_bytes, "an exception of an unknown type");
  }
  return DSC_ERR_BACKEND;
}

}  // namespace dsc::gloo_module
