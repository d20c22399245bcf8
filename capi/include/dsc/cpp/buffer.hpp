// Buffer arguments: which ones the operations, tensors and gradients take. A buffer is anything with data()
// and size(): a vector, an array, a std::span or a dsc::span. Its element type is deduced.
#ifndef DSC_CPP_BUFFER_HPP
#define DSC_CPP_BUFFER_HPP

#include <dsc/cpp/dtype.hpp>
#include <dsc/cpp/span.hpp>
#include <iterator>
#include <type_traits>
#include <utility>

namespace dsc {
inline namespace v0 {
namespace detail {

template <class T, class = void>
inline constexpr bool is_buffer = false;
template <class T>
inline constexpr bool is_buffer<
    T, std::void_t<element_of<std::remove_reference_t<T>>, decltype(std::size(std::declval<T&>()))>> =
    std::is_object_v<element_of<std::remove_reference_t<T>>>;

template <class T>
using if_buffer = std::enable_if_t<is_buffer<T>, int>;

// A pointer to elements is no buffer, because their number is not known.
template <class T, class Element = std::remove_pointer_t<without_reference<T>>>
using if_pointer_to_elements = std::enable_if_t<
    std::is_pointer_v<without_reference<T>> && (is_element<Element> || std::is_arithmetic_v<Element>), int>;

// Whether a container will end with the statement. A view is no such container: the program owns its memory.
// A view, unlike a container, has the same access to its elements if it is const itself.
template <class Buffer, class Container = without_reference<Buffer>>
constexpr bool is_temporary_container() {
  if constexpr (std::is_lvalue_reference_v<Buffer> || !is_buffer<Buffer> || is_span<Container>::value)
    return false;
  else
    return !std::is_const_v<element_of<Container>> && std::is_const_v<element_of<const Container>>;
}

// The elements of a buffer that is not used after the call.
template <class Buffer>
constexpr auto view(Buffer&& buffer) {
  static_assert(is_buffer<Buffer>, "the argument is no buffer; expected something with data() and size()");
  return span<element_of<std::remove_reference_t<Buffer>>>(buffer);
}

// The elements of a buffer that is used after the call.
template <class Buffer>
constexpr auto lasting_view(Buffer&& buffer) {
  static_assert(!is_temporary_container<Buffer>(),
                "the buffer is a temporary, which ends before it is used; expected a variable or a view");
  return view(buffer);
}

// The elements of a buffer that is written to after the call.
template <class Buffer>
constexpr auto writable_view(Buffer&& buffer) {
  using elements = decltype(view(buffer));
  static_assert(!std::is_const_v<typename elements::element_type>,
                "the buffer is written to; expected a variable, or a view of elements that are not const");
  return lasting_view(std::forward<Buffer>(buffer));
}

// An argument of an operation that ends before the call returns. A temporary lasts as long and can be sent,
// so it is passed on as a view of elements to read.
template <class Argument>
constexpr decltype(auto) during_call(Argument&& argument) {
  if constexpr (is_temporary_container<Argument>())
    return span<const element_of<Argument>>(argument);
  else
    return std::forward<Argument>(argument);
}

}  // namespace detail
}  // namespace v0
}  // namespace dsc

#endif  // DSC_CPP_BUFFER_HPP
