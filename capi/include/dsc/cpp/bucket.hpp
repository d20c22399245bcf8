// Communication hooks: functions that replace a reducer's all-reduce of a bucket.
#ifndef DSC_CPP_BUCKET_HPP
#define DSC_CPP_BUCKET_HPP

#include <cstddef>
#include <cstdint>
#include <dsc/cpp/callback.hpp>
#include <dsc/cpp/comm.hpp>
#include <functional>
#include <string>
#include <utility>

namespace dsc {
inline namespace v0 {

// A complete bucket of gradients, valid during a call of the hook.
class bucket {
 public:
  explicit bucket(const dsc_bucket_t& raw) : raw_(raw), comm_(raw.comm) {}

  // The reducer's group, for the hook's operations.
  const comm_view& comm() const noexcept { return comm_; }

  std::size_t index() const noexcept { return raw_.index; }
  bool is_last() const noexcept { return raw_.is_last != 0; }
  dtype type() const noexcept { return static_cast<dtype>(raw_.dtype); }

  // The number of ranks that take part. The mean is the sum divided by it.
  std::int32_t divisor() const noexcept { return raw_.divisor; }

  // The parameters in the bucket.
  span<const std::size_t> params() const noexcept { return {raw_.params, raw_.n_params}; }

  // The gradients one after another, not divided. The hook writes their mean over all ranks here.
  template <class T>
  span<T> elements() const {
    if (dtype_of_v<T> != type())
      detail::wrong("bucket " + std::to_string(index()) + " has elements of " + name(type()) + ", not of " +
                    name(dtype_of_v<T>));
    return {static_cast<T*>(raw_.buffer), raw_.count};
  }

  // All fields in the form of C.
  const dsc_bucket_t& raw() const noexcept { return raw_; }

 private:
  const dsc_bucket_t& raw_;
  comm_view comm_;
};

namespace detail {

// A hook as the library calls it.
struct bucket_hook {
  std::function<void(bucket&)> function;
  kept_exception kept;

  static std::int32_t run(void* context, const dsc_bucket_t* raw, dsc_work_t** work) {
    auto& self = *static_cast<bucket_hook*>(context);
    *work = nullptr;  // the function has waited for its operations
    return self.kept.run(raw->error, raw->error_capacity, [&] {
      bucket complete(*raw);
      self.function(complete);
    });
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace dsc

#endif  // DSC_CPP_BUCKET_HPP
