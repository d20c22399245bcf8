// Failures of calls, as exceptions.
#ifndef DSC_CPP_ERROR_HPP
#define DSC_CPP_ERROR_HPP

#if !defined(__cpp_exceptions)
#error \
    "dsc/dsc.hpp reports failures as exceptions; with -fno-exceptions include dsc/dsc.h and use the functions of C"
#endif

#include <cstdint>
#include <dsc/cpp/dtype.hpp>
#include <dsc/cpp/span.hpp>
#include <memory>
#include <stdexcept>
#include <string>

namespace dsc {
inline namespace v0 {

// The failure of a call. what() is the text of the library, which names the function, what was expected and
// what came. Its type has default visibility, so that a program can catch what a plugin throws.
class DSC_API error : public std::runtime_error {
 public:
  error(errc code, const std::string& text) : std::runtime_error(text), code_(code) {}
  error(const std::string& text, const dsc_error_info_t& info)
      : std::runtime_error(text),
        code_(static_cast<errc>(info.code)),
        info_(std::make_shared<const dsc_error_info_t>(info)) {}

  errc code() const noexcept { return code_; }

  // The first rank at fault, as a rank of group(); -1: not known.
  std::int32_t rank() const noexcept { return info_ ? info_->rank : -1; }

  // All ranks at fault, at most 64. The view is valid as long as this error or a copy of it.
  span<const std::int32_t> ranks() const noexcept {
    return info_ ? span<const std::int32_t>(info_->ranks, info_->n_ranks) : span<const std::int32_t>();
  }

  // The operation, such as "all_reduce", its number in the communicator, from 1, and the communicator's name.
  // They are empty or 0 where they are not known.
  const char* operation() const noexcept { return info_ ? info_->operation : ""; }
  std::uint64_t sequence() const noexcept { return info_ ? info_->sequence : 0; }
  const char* group() const noexcept { return info_ ? info_->group : ""; }

  // Whether the communicator no longer works. comm_view::failure() then has the first cause.
  bool revoked() const noexcept { return info_ && info_->revoked != 0; }

  // All details in the form of C; NULL if the failure has none.
  const dsc_error_info_t* info() const noexcept { return info_.get(); }

 private:
  errc code_;
  std::shared_ptr<const dsc_error_info_t> info_;  // shared, because copies of an exception may not throw
};

namespace detail {

inline dsc_error_info_t empty_error_info() {
  dsc_error_info_t info = {};
  info.struct_size = sizeof info;
  return info;
}

}  // namespace detail

// The failure of this thread's last call, which has returned `result`.
inline error last_error(dsc_result_t result) {
  const std::string text = dsc_last_error_message();
  dsc_error_info_t info = detail::empty_error_info();
  const bool known = dsc_last_error_info(&info) == DSC_OK && info.code == result;
  return known ? error(text, info) : error(static_cast<errc>(result), text);
}

// Throws if a call of the C interface has failed; returns its result otherwise. Use it with the functions
// that have no C++ form: dsc::check(dsc_ring_create(...)).
inline dsc_result_t check(dsc_result_t result) {
  if (result < 0) throw last_error(result);
  return result;
}

namespace detail {

// Throws because an argument is wrong. Nothing has happened before.
[[noreturn]] inline void wrong(const std::string& text) { throw error(errc::invalid_arg, text); }

}  // namespace detail
}  // namespace v0
}  // namespace dsc

#endif  // DSC_CPP_ERROR_HPP
