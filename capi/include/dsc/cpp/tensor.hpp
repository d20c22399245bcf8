// Lists of tensors, and operations on them.
#ifndef DSC_CPP_TENSOR_HPP
#define DSC_CPP_TENSOR_HPP

#include <cstddef>
#include <cstdint>
#include <dsc/cpp/buffer.hpp>
#include <dsc/cpp/comm.hpp>
#include <type_traits>
#include <utility>
#include <vector>

namespace dsc {
inline namespace v0 {

// The description of a tensor. It refers to the elements, the name and the shape, which must stay valid as
// long as it is used. Its other fields are those of C: set device for memory of a GPU.
class tensor : public dsc_tensor_t {
 public:
  // The elements of a buffer in host memory.
  template <class Buffer,
            std::enable_if_t<!std::is_base_of_v<dsc_tensor_t, detail::without_reference<Buffer>>, int> = 0>
  explicit tensor(Buffer&& elements, const char* shown_name = nullptr)
      : tensor(detail::writable_view(std::forward<Buffer>(elements)), shown_name, 0) {}

  // Elements of a type, without memory: for shapes of pipelines and for checks.
  template <class T>
  static tensor described(std::size_t elements) {
    return tensor(span<T>(nullptr, elements));
  }

  // Sets the sizes, whose product is the number of elements.
  tensor& shaped(span<const std::int64_t> sizes) {
    shape = sizes.data();
    ndim = static_cast<std::int32_t>(sizes.size());
    return *this;
  }

 private:
  template <class T>
  tensor(span<T> elements, const char* shown_name, int)
      : dsc_tensor_t(dsc_tensor_on_host(elements.data(), elements.size(), detail::value(dtype_of_v<T>))) {
    name = shown_name;
  }
};

static_assert(sizeof(tensor) == sizeof(dsc_tensor_t), "a list of tensors has the layout of the C interface");

using tensors = std::vector<tensor>;

// Checks that all ranks have the same tensors: number, types, counts and shapes.
inline void verify_params(const comm_view& comm, const tensors& params) {
  check(dsc_comm_verify_params(comm.get(), params.data(), params.size()));
}

// Copies the root's tensors to all ranks, packed into buffers. 0: the library's size of a buffer.
inline void broadcast_coalesced(const comm_view& comm, const tensors& list, std::int32_t root,
                                std::size_t buffer_bytes = 0) {
  check(dsc_broadcast_coalesced(comm.get(), list.data(), list.size(), root, buffer_bytes));
}

// Reduces tensors over all ranks in place, packed into buffers.
inline void all_reduce_coalesced(const comm_view& comm, const tensors& list, const reduce_op& op,
                                 std::size_t buffer_bytes = 0) {
  const dsc_result_t result =
      dsc_all_reduce_coalesced(comm.get(), list.data(), list.size(), op.number(), buffer_bytes);
  if (result >= 0) return;
  const error failure = last_error(result);
  op.rethrow_cause(failure);
  throw failure;
}

namespace detail {

// What reducers and sharded parameters remember of their parameters, to check the types of views.
class param_list {
 public:
  param_list(const tensors& params, dsc_dtype_t grad_dtype) {
    for (const tensor& one : params) {
      const auto type = static_cast<dtype>(one.dtype);
      entries_.push_back({one.count, type, grad_dtype != 0 ? static_cast<dtype>(grad_dtype) : type});
    }
  }

  std::size_t size() const noexcept { return entries_.size(); }

  template <class T>
  span<T> param_view(std::size_t index, void* address) const {
    return typed<T>(index, address, entries_.at(index).type);
  }
  template <class T>
  span<T> grad_view(std::size_t index, void* address) const {
    return typed<T>(index, address, entries_.at(index).grad_type);
  }

  // Throws unless a gradient of the program has the parameter's number of elements and one of the allowed
  // types.
  template <class T>
  void expect_gradient(const char* call, std::size_t index, span<T> gradient, bool or_grad_type) const {
    if (index >= entries_.size()) return;  // the library says which indices it expects
    const entry& one = entries_[index];
    if (gradient.size() != one.count)
      wrong(std::string(call) + ": the gradient of parameter " + std::to_string(index) + " has " +
            std::to_string(gradient.size()) + " elements, expected " + std::to_string(one.count));
    constexpr dtype type = dtype_of_v<T>;
    if (type != one.type && !(or_grad_type && type == one.grad_type)) refuse_type(index, type, one.type);
  }

 private:
  struct entry {
    std::size_t count;
    dtype type, grad_type;
  };

  template <class T>
  span<T> typed(std::size_t index, void* address, dtype expected) const {
    if (dtype_of_v<T> != expected) refuse_type(index, dtype_of_v<T>, expected);
    return {static_cast<T*>(address), entries_[index].count};
  }

  [[noreturn]] static void refuse_type(std::size_t index, dtype type, dtype expected) {
    wrong("parameter " + std::to_string(index) + " has elements of " + dsc::name(expected) + ", not of " +
          dsc::name(type));
  }

  std::vector<entry> entries_;
};

}  // namespace detail
}  // namespace v0
}  // namespace dsc

#endif  // DSC_CPP_TENSOR_HPP
