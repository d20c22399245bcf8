// The boundary of the module, and its only try and catch: no exception of Gloo's leaves it, neither towards
// libdsc nor out of the thread that Gloo made, where it would end the process.
#pragma once

#include <cstdio>
#include <exception>
#include <new>

#include <cxxabi.h>

#include "dsc/types.h"

namespace dsc::gloo_module {

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
    std::snprintf(error, error_bytes, "%s", thrown.what());
  } catch (...) {
    std::snprintf(error, error_bytes, "an exception of an unknown type");
  }
  return DSC_ERR_BACKEND;
}

}  // namespace dsc::gloo_module
