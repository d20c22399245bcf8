// Exceptions of callbacks. They may not pass through the library, so they are kept here and thrown again from
// the call in which the callback ran. Other ranks get a dsc::error with the text of the exception.
#ifndef DSC_CPP_CALLBACK_HPP
#define DSC_CPP_CALLBACK_HPP

#include <cxxabi.h>

#include <cstddef>
#include <cstring>
#include <dsc/cpp/error.hpp>
#include <exception>
#include <mutex>
#include <string>

namespace dsc {
inline namespace v0 {
namespace detail {

// Writes a text to a callback's field for errors, cut between characters of UTF-8.
inline void write_callback_text(const std::string& text, char* room, std::size_t capacity) noexcept {
  if (room == nullptr || capacity == 0) return;
  std::size_t length = text.size() < capacity ? text.size() : capacity - 1;
  while (length > 0 && length < text.size() && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80)
    --length;
  std::memcpy(room, text.data(), length);
  room[length] = '\0';
}

// Keeps the exception of a callback. Several threads may use it.
class kept_exception {
 public:
  // Calls a function for the library. Returns 0, or 1 after an exception, which it keeps, and whose text it
  // writes.
  template <class Function>
  std::int32_t run(char* room, std::size_t capacity, Function&& function) {
    try {
      function();
      return 0;
#ifdef __GLIBCXX__
    } catch (abi::__forced_unwind&) {
      throw;  // the thread is being cancelled; a handler that does not throw this again ends the process
#endif
    } catch (const std::exception& caught) {
      keep(caught.what(), room, capacity);
    } catch (...) {
      keep("an exception that is not a std::exception", room, capacity);
    }
    return 1;
  }

  // Like dsc::check(). If the failure is that of the kept exception, throws this exception itself.
  dsc_result_t check(dsc_result_t result) {
    if (result >= 0) return result;
    const error failure = last_error(result);
    rethrow_cause(failure);
    throw failure;
  }

  // Throws the kept exception if the failure is its consequence. A failure of another rank's callback has
  // another text, or comes while nothing is kept.
  void rethrow_cause(const error& failure) {
    std::exception_ptr cause;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const bool is_cause =
          exception_ && (failure.code() == errc::callback || failure.code() == errc::revoked);
      if (is_cause && std::strstr(failure.what(), text_.c_str()) != nullptr) cause = exception_;
    }
    if (cause) std::rethrow_exception(cause);
  }

 private:
  void keep(const char* text, char* room, std::size_t capacity) noexcept {
    try {
      const std::lock_guard<std::mutex> lock(mutex_);
      exception_ = std::current_exception();
      write_callback_text(text, room, capacity);
      text_ = room != nullptr && capacity > 0 ? room : text;
    } catch (...) {
      // Without memory for the text, the library's own error remains.
    }
  }

  std::mutex mutex_;
  std::exception_ptr exception_;
  std::string text_;  // as the library has it, so that it can be found in the text of the failure
};

}  // namespace detail
}  // namespace v0
}  // namespace dsc

#endif  // DSC_CPP_CALLBACK_HPP
