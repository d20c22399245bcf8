// Reduce operations: the library's own, scaled sums, and user-defined functions.
#ifndef DSC_CPP_OP_HPP
#define DSC_CPP_OP_HPP

#include <cstdint>
#include <dsc/cpp/callback.hpp>
#include <dsc/cpp/handle.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace dsc {
inline namespace v0 {
namespace detail {

// A function of the program as the library calls it.
struct user_function {
  std::function<void(const dsc_op_call_t&)> combine;
  dtype type;
  kept_exception kept;
};

// Keeps a function until the process ends. An operation that has failed may leave a thread inside the
// function, and the library does not tell when that thread has returned.
inline void keep_forever(const std::shared_ptr<user_function>& function) {
  static std::mutex mutex;
  static auto* const functions = new std::vector<std::shared_ptr<user_function>>;
  const std::lock_guard<std::mutex> lock(mutex);
  functions->push_back(function);
}

// What the library calls. Functions of C++ may be called from C with the compilers that the library supports.
inline std::int32_t run_combine(void* context, const dsc_op_call_t* call) {
  auto& function = *static_cast<user_function*>(context);
  return function.kept.run(call->error, call->error_capacity, [&] {
    if (call->dtype != value(function.type))
      wrong(std::string("called for elements of ") + dsc_dtype_name(call->dtype) + ", expected " +
            name(function.type));
    function.combine(*call);
  });
}

// Owns the number of an operation that the program has created.
class op_number {
 public:
  explicit op_number(dsc_op_t owned) noexcept : number_(owned) {}
  op_number(op_number&& other) noexcept : number_(std::exchange(other.number_, 0)) {}
  op_number& operator=(op_number&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~op_number() { dsc_op_destroy(number_); }
  dsc_op_t get() const noexcept { return number_; }

 private:
  dsc_op_t number_;
};

}  // namespace detail

// A user-defined function as a reduce operation, for elements of T:
//   dsc::user_op<double> hypot(1, [](dsc::span<double> result, dsc::span<const double> input) { ... });
//
// `result` holds the result of all ranks before, `input` the elements of the next rank. The function writes
// their combination into `result`. It runs on any rank and any thread, on several at once, for pieces of the
// buffers, and must compute the same bits everywhere. It must not call the library. `id` identifies what it
// does: ranks with different ids get errc::mismatch.
//
// If it throws, the operation throws this exception where the function ran, and the communicator is revoked.
// The other ranks throw a dsc::error with its text. If several threads throw, the exception is the first
// that reaches the library. The function is kept until the process ends, also after this object is destroyed;
// so what it refers to must not end before.
template <class T>
class user_op {
 public:
  template <class Combine>
  user_op(std::uint64_t id, Combine combine)
      : function_(wrap(std::move(combine))), number_(create(id, *function_)) {
    detail::keep_forever(function_);
  }

 private:
  friend class reduce_op;

  template <class Combine>
  static std::shared_ptr<detail::user_function> wrap(Combine combine) {
    auto function = std::make_shared<detail::user_function>();
    function->type = dtype_of_v<T>;
    function->combine = [combine = std::move(combine)](const dsc_op_call_t& call) {
      combine(span<T>(static_cast<T*>(call.result), call.count),
              span<const T>(static_cast<const T*>(call.input), call.count));
    };
    return function;
  }

  static detail::op_number create(std::uint64_t id, detail::user_function& function) {
    return detail::op_number(detail::query<dsc_op_t>(dsc_op_create_user, detail::run_combine,
                                                     static_cast<void*>(&function), id, 1));
  }

  std::shared_ptr<detail::user_function> function_;
  detail::op_number number_;
};

// An operation that multiplies every input by a number when it is read, and sums the products.
class premul_sum {
 public:
  explicit premul_sum(double scale) : number_(detail::query<dsc_op_t>(dsc_op_create_premul, scale)) {}

 private:
  friend class reduce_op;
  detail::op_number number_;
};

// What the operations take: any of the above, or a value of dsc::op. An operation that was started keeps the
// function of a user_op; the number of a user_op that was destroyed is errc::invalid_arg.
class reduce_op {
 public:
  reduce_op(op built_in) noexcept : number_(detail::value(built_in)) {}
  reduce_op(const premul_sum& sum) noexcept : number_(sum.number_.get()) {}
  template <class T>
  reduce_op(const user_op<T>& user) noexcept : number_(user.number_.get()), function_(user.function_) {}

  dsc_op_t number() const noexcept { return number_; }
  bool has_function() const noexcept { return function_ != nullptr; }

  // Throws for a function of other elements, before anything happens.
  void expect(dtype type) const {
    if (function_ && function_->type != type)
      detail::wrong(std::string("the operation is for elements of ") + name(function_->type) + ", not of " +
                    name(type));
  }

  // Throws the exception of the function if the failure is its consequence.
  void rethrow_cause(const error& failure) const {
    if (function_) function_->kept.rethrow_cause(failure);
  }

 private:
  dsc_op_t number_;
  std::shared_ptr<detail::user_function> function_;  // empty for other operations
};

}  // namespace v0
}  // namespace dsc

#endif  // DSC_CPP_OP_HPP
