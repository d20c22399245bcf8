// Operations that were started without waiting for them.
#ifndef DSC_CPP_WORK_HPP
#define DSC_CPP_WORK_HPP

#include <chrono>
#include <cstdint>
#include <dsc/cpp/handle.hpp>
#include <dsc/cpp/op.hpp>
#include <exception>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace dsc {
inline namespace v0 {

using milliseconds = std::chrono::milliseconds;

namespace detail {

// A time-out in the form of the C interface. Longer ones become the longest that fits.
inline std::int32_t timeout_ms(milliseconds timeout) noexcept {
  const auto most = std::numeric_limits<std::int32_t>::max();
  if (timeout.count() < 0) return 0;
  return timeout.count() > most ? most : static_cast<std::int32_t>(timeout.count());
}

// A failure in the form of an exception, or nothing.
inline std::optional<error> failure_of(const dsc_error_info_t& info) {
  if (info.code >= 0) return std::nullopt;
  return error(info.text, info);
}

}  // namespace detail

// A running operation, as a future without a value: the result is in the operation's buffers. They must stay
// valid and untouched until it has completed.
//
// The destructor waits for an operation that still runs, at most until its deadline, so that buffers which
// were declared before it stay valid. It ignores failures: call wait(). While an exception unwinds the stack,
// it first aborts the communicator on all ranks, because the other ranks may wait for what this one will not
// call; then it does not wait long. detach() gives up the operation without waiting.
//
// Several threads may use one work, except for moving and destroying it.
class [[nodiscard]] work {
 public:
  work() noexcept = default;
  work(dsc_work_t* owned, dsc_comm_t* comm, std::vector<reduce_op> ops = {})
      : handle_(owned), comm_(comm), ops_(std::move(ops)), exceptions_(std::uncaught_exceptions()) {}
  work(work&&) noexcept = default;
  work& operator=(work&& other) noexcept {
    if (this != &other) {
      settle();
      handle_ = std::move(other.handle_);
      comm_ = other.comm_;
      ops_ = std::move(other.ops_);
      exceptions_ = other.exceptions_;
    }
    return *this;
  }
  ~work() { settle(); }

  explicit operator bool() const noexcept { return static_cast<bool>(handle_); }
  dsc_work_t* get() const noexcept { return handle_.get(); }

  // Whether it has completed, with success or not.
  bool done() const { return detail::query<std::int32_t>(dsc_work_test, get()) != 0; }

  // Waits until it has completed, and throws if it failed. For memory of a GPU, the stream waits instead of
  // the host, as in dsc_work_wait(); then use synchronize() before the host reads the result.
  void wait(void* stream = nullptr) const { check_work(dsc_work_wait(get(), -1, stream)); }

  // Waits like wait(), but at most for this time. Returns whether the operation has completed. A time-out
  // does not end the operation.
  bool wait_for(milliseconds timeout, void* stream = nullptr) const {
    return check_work(dsc_work_wait(get(), detail::timeout_ms(timeout), stream)) == DSC_OK;
  }

  // Waits on the host until the buffers are no longer used, also for memory of a GPU.
  void synchronize() const { check_work(dsc_work_synchronize(get(), -1)); }

  // How it has failed; nothing after success and while it runs.
  std::optional<error> failure() const {
    dsc_error_info_t info = detail::empty_error_info();
    check(dsc_work_error_info(get(), &info));
    return detail::failure_of(info);
  }

  // A descriptor that becomes readable when it has completed, for poll(). It belongs to this object.
  int descriptor() const { return detail::query<std::int32_t>(dsc_work_eventfd, get()); }

  // Gives up the operation, which continues. Its buffers must stay valid until it has completed.
  void detach() noexcept { handle_ = {}; }

 private:
  void settle() noexcept {
    std::int32_t completed = 1;
    if (!handle_ || dsc_work_test(get(), &completed) != DSC_OK || completed != 0) return;
    if (std::uncaught_exceptions() > exceptions_) dsc_comm_abort(comm_);
    dsc_work_synchronize(get(), -1);
  }

  dsc_result_t check_work(dsc_result_t result) const {
    if (result >= 0) return result;
    const error failure = last_error(result);
    for (const reduce_op& one : ops_) one.rethrow_cause(failure);
    throw failure;
  }

  handle<dsc_work_t, dsc_work_destroy> handle_;
  dsc_comm_t* comm_ = nullptr;
  std::vector<reduce_op> ops_;  // those with user-defined functions
  int exceptions_ = 0;          // in flight when the operation was started
};

}  // namespace v0
}  // namespace dsc

#endif  // DSC_CPP_WORK_HPP
