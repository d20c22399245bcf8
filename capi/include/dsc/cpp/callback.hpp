// Exceptions of callbacks. They may not pass through the library, so they are kept here and thrown again from
// the call in which the callback ran. Other ranks get a dsc::error with the text of the exception.
#ifndef DSC_CPP_CALLBACK_HPP
#define DSC_CPP_CALLBACK_HPP

#include <cxxabi.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <dsc/cpp/error.hpp>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

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

// Keeps the exceptions of a callback. It may run on several threads, which throw different ones; the library
// reports the first that reaches it. So the exceptions are kept by their texts. Several threads may use this.
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

  // Throws the kept exception whose consequence the failure is. A failure of another rank's callback has
  // another text, or comes while nothing is kept.
  void rethrow_cause(const error& failure) {
    if (failure.code() != errc::callback && failure.code() != errc::revoked) return;
    if (const std::exception_ptr cause = find(failure.what())) std::rethrow_exception(cause);
  }

 private:
  struct thrown {
    std::exception_ptr exception;
    std::string text;  // as the library has it, so that it can be found in the text of the failure
  };
  static constexpr std::size_t most = 64;  // more than threads that run the function at the same time

  // Keeps the exception that is being handled. The newest one with a text replaces the others with this text.
  void keep(const char* text, char* room, std::size_t capacity) noexcept {
    try {
      const std::lock_guard<std::mutex> lock(mutex_);
      write_callback_text(text, room, capacity);
      const std::string shown = room != nullptr && capacity > 0 ? room : text;
      const auto same = [&](const thrown& one) { return one.text == shown; };
      kept_.erase(std::remove_if(kept_.begin(), kept_.end(), same), kept_.end());
      if (kept_.size() == most) kept_.erase(kept_.begin());
      kept_.push_back({std::current_exception(), shown});
    } catch (...) {
      // Without memory for the text, the library's own error remains.
    }
  }

  // The exception with the longest text that the failure contains, because one text may be a part of another.
  std::exception_ptr find(const char* failure) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const thrown* found = nullptr;
    for (const thrown& one : kept_) {
      const bool is_better = found == nullptr || one.text.size() > found->text.size();
      if (is_better && std::strstr(failure, one.text.c_str()) != nullptr) found = &one;
    }
    return found != nullptr ? found->exception : nullptr;
  }

  std::mutex mutex_;
  std::vector<thrown> kept_;  // the newest one last
};

}  // namespace detail
}  // namespace v0
}  // namespace dsc

#endif  // DSC_CPP_CALLBACK_HPP
