// Every call into the library runs inside guard(), which turns exceptions into result codes and keeps the
// text of the thread's last error. All try and catch blocks of the library are in this folder.
#pragma once

#include <type_traits>

#include <cxxabi.h>

#include "base/error.hpp"
#include "base/process_guard.hpp"

namespace dsc {

// Returns DSC_OK if the call may proceed. Otherwise returns the reason for the refusal and sets it as the
// thread's last error.
dsc_result_t check_entry(const char* function) noexcept;

// Must be called inside a catch block. Returns the result code of the exception and keeps its text, prefixed
// with the function's name.
dsc_result_t keep_exception(const char* function) noexcept;

// Sets this thread's last error and returns the code.
dsc_result_t keep_error(const char* function, const Failure& failure) noexcept;

// The last error of the calling thread; its code is DSC_OK if there was none.
struct LastError {
  const char* message = "";  // starts with the function's name
  const Failure* failure = nullptr;
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
    throw;  // cancellation of a thread must unwind the whole stack
  } catch (...) {
    return keep_exception(function);
  }
}

// Like guard_pure(), but also refuses calls in a forked child and inside a callback.
template <typename Body>
dsc_result_t guard(const char* function, Body&& body) {
  const dsc_result_t refused = check_entry(function);
  return refused != DSC_OK ? refused : guard_pure(function, body);
}

// Must be called inside a catch block. Passes the current exception to `report` as an Error.
void name_exception(void (*report)(void* context, const Error& error), void* context);

// Runs code and reports its failure without an exception. If the code throws, calls `on_error(code, text)` or
// `on_error(error)` and returns false. Only `on_error(error)` receives the whole record.
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

// Runs the body of a thread. An exception that reaches this point is a bug, and its text is passed to
// `report`.
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
