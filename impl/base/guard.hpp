// The boundary: the only try and catch of the library. Turns exceptions into results and keeps the last
// error's text.
#pragma once

#include <type_traits>

#include <cxxabi.h>

#include "base/error.hpp"
#include "base/process_guard.hpp"

namespace dsc {

// DSC_OK, or the refusal with its text set.
dsc_result_t check_entry(const char* function) noexcept;

// Call inside a catch block: turns the exception into its code and keeps its text, with the function's name
// before it.
dsc_result_t keep_exception(const char* function) noexcept;

// Sets this thread's last error and returns the code.
dsc_result_t keep_error(const char* function, dsc_result_t code, const char* text,
                        const ErrorPlace& place = {}) noexcept;

// Of this thread; code DSC_OK before the first one.
struct LastError {
  dsc_result_t code = DSC_OK;
  const char* message = "";  // with the function's name before it
  const char* text = "";     // without
  const ErrorPlace* place = nullptr;
};
LastError last_error() noexcept;

template <typename Body>
dsc_result_t guard_pure(const char* function, Body&& body) {
  try {
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      return DSC_OK;
    } else {
      return body();
    }
  } catch (const abi::__forced_unwind&) {
    throw;  // a cancelled thread must unwind to its end
  } catch (...) {
    return keep_exception(function);
  }
}

// As guard_pure, for calls that are refused in a forked child and inside a callback.
template <typename Body>
dsc_result_t guard(const char* function, Body&& body) {
  const dsc_result_t refused = check_entry(function);
  return refused != DSC_OK ? refused : guard_pure(function, body);
}

// Call inside a catch block: tells `report` what was thrown, as an Error.
void name_exception(void (*report)(void* context, const Error& error), void* context);

// Runs code whose failure has another way to be told; false if it threw, after `on_error(code, text)` or
// `on_error(error)`, which knows the place besides.
template <typename Body, typename OnError>
bool capture(Body&& body, OnError&& on_error) {
  try {
    body();
    return true;
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    using Plain = std::remove_reference_t<OnError>;
    name_exception(
        [](void* context, const Error& error) {
          if constexpr (std::is_invocable_v<Plain&, const Error&>)
            (*static_cast<Plain*>(context))(error);
          else
            (*static_cast<Plain*>(context))(error.code(), error.what());
        },
        const_cast<void*>(static_cast<const void*>(&on_error)));
  }
  return false;
}

// Runs a thread's body; an exception that reaches here is a bug and is given to `report`.
template <typename Body, typename Report>
void guard_thread(Body&& body, Report&& report) {
  try {
    body();
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (const std::exception& error) {
    report(error.what());
  } catch (...) {
    report("unknown exception");
  }
}

}  // namespace dsc
