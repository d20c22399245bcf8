// A view of contiguous elements, as std::span of C++20. Any container with data() and size() converts to it.
#ifndef DSC_CPP_SPAN_HPP
#define DSC_CPP_SPAN_HPP

#include <cstddef>
#include <iterator>
#include <type_traits>

namespace dsc {
inline namespace v0 {

template <class T>
class span;

namespace detail {

template <class T>
struct is_span : std::false_type {};
template <class T>
struct is_span<span<T>> : std::true_type {};

template <class T>
using without_reference = std::remove_cv_t<std::remove_reference_t<T>>;

// The elements of a container, const if the container gives no access for writing.
template <class Container>
using element_of = std::remove_pointer_t<decltype(std::data(std::declval<Container&>()))>;

// Whether a pointer to From[] may be used as a pointer to To[]. Only const may be added.
template <class From, class To>
inline constexpr bool same_elements = std::is_convertible_v<From (*)[], To (*)[]>;

template <class Container, class T, class = void>
struct is_container_of : std::false_type {};
template <class Container, class T>
struct is_container_of<Container, T,
                       std::void_t<element_of<Container>, decltype(std::size(std::declval<Container&>()))>>
    : std::bool_constant<!is_span<without_reference<Container>>::value &&
                         same_elements<element_of<Container>, T>> {};

}  // namespace detail

template <class T>
class span {
 public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;
  using size_type = std::size_t;
  using iterator = T*;

  constexpr span() noexcept = default;
  constexpr span(T* data, std::size_t size) noexcept : data_(data), size_(size) {}

  // From vectors, arrays, std::span and other containers. As with std::span, the container must outlive the
  // view, so a view of T that is not const needs a container that is not a temporary.
  template <class Container,
            std::enable_if_t<detail::is_container_of<Container, T>::value &&
                                 (std::is_const_v<T> || std::is_lvalue_reference_v<Container> ||
                                  std::is_trivially_copyable_v<Container>),
                             int> = 0>
  constexpr span(Container&& container) : data_(std::data(container)), size_(std::size(container)) {}

  // From a view of elements that may be written to one of elements that may not.
  template <class Other,
            std::enable_if_t<!std::is_same_v<Other, T> && detail::same_elements<Other, T>, int> = 0>
  constexpr span(span<Other> other) noexcept : data_(other.data()), size_(other.size()) {}

  constexpr T* data() const noexcept { return data_; }
  constexpr std::size_t size() const noexcept { return size_; }
  constexpr std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
  constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr T& operator[](std::size_t index) const { return data_[index]; }
  constexpr T& front() const { return data_[0]; }
  constexpr T& back() const { return data_[size_ - 1]; }
  constexpr T* begin() const noexcept { return data_; }
  constexpr T* end() const noexcept { return data_ + size_; }

  // A part of the view. It must be within the view.
  constexpr span subspan(std::size_t offset, std::size_t count) const { return {data_ + offset, count}; }
  constexpr span first(std::size_t count) const { return {data_, count}; }
  constexpr span last(std::size_t count) const { return {data_ + (size_ - count), count}; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

template <class T>
span(T*, std::size_t) -> span<T>;
template <class Container>
span(Container&&) -> span<detail::element_of<std::remove_reference_t<Container>>>;

}  // namespace v0
}  // namespace dsc

#endif  // DSC_CPP_SPAN_HPP
