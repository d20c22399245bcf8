// Element types: which C++ type has which number in the C interface.
#ifndef DSC_CPP_DTYPE_HPP
#define DSC_CPP_DTYPE_HPP

#include <cstddef>
#include <cstdint>
#include <dsc/cpp/enums.hpp>
#include <type_traits>

namespace dsc {
inline namespace v0 {

// Elements that C++17 has no type for, as their bits. The library computes with them; C++ only stores them.
struct f16 {
  std::uint16_t bits;
};
struct bf16 {
  std::uint16_t bits;
};
struct f8e4m3 {
  std::uint8_t bits;
};
struct f8e5m2 {
  std::uint8_t bits;
};

namespace detail {

template <dtype Value>
struct has_dtype {
  static constexpr dtype value = Value;
};

template <std::size_t Bytes, bool Signed>
struct integer_dtype {};
template <>
struct integer_dtype<1, true> : has_dtype<dtype::i8> {};
template <>
struct integer_dtype<1, false> : has_dtype<dtype::u8> {};
template <>
struct integer_dtype<4, true> : has_dtype<dtype::i32> {};
template <>
struct integer_dtype<4, false> : has_dtype<dtype::u32> {};
template <>
struct integer_dtype<8, true> : has_dtype<dtype::i64> {};
template <>
struct integer_dtype<8, false> : has_dtype<dtype::u64> {};

template <class T, bool IsInteger>
struct dtype_of_kind {};
template <class T>
struct dtype_of_kind<T, true> : integer_dtype<sizeof(T), std::is_signed_v<T>> {};

}  // namespace detail

// The element type of T. Specialize it for a type of your own with the same bits, such as another class for
// f16:
//   template <> struct dsc::dtype_of<half> { static constexpr dsc::dtype value = dsc::dtype::f16; };
// It has no value for other types, so that a buffer of them does not compile.
template <class T>
struct dtype_of : detail::dtype_of_kind<T, std::is_integral_v<T>> {};
template <>
struct dtype_of<float> : detail::has_dtype<dtype::f32> {};
template <>
struct dtype_of<double> : detail::has_dtype<dtype::f64> {};
template <>
struct dtype_of<bool> : detail::has_dtype<dtype::bool_> {};
template <>
struct dtype_of<std::byte> : detail::has_dtype<dtype::u8> {};
template <>
struct dtype_of<f16> : detail::has_dtype<dtype::f16> {};
template <>
struct dtype_of<bf16> : detail::has_dtype<dtype::bf16> {};
template <>
struct dtype_of<f8e4m3> : detail::has_dtype<dtype::f8e4m3> {};
template <>
struct dtype_of<f8e5m2> : detail::has_dtype<dtype::f8e5m2> {};

namespace detail {

template <class T, class = void>
inline constexpr bool is_element = false;
template <class T>
inline constexpr bool is_element<T, std::void_t<decltype(dtype_of<std::remove_cv_t<T>>::value)>> = true;

// Every use of an element type comes through here, so that a wrong one gets the same message everywhere.
template <class T>
constexpr dtype expected_dtype() {
  static_assert(is_element<T>,
                "wrong element type; expected float, double, bool, an integer of 1, 4 or 8 bytes, std::byte, "
                "dsc::f16, dsc::bf16, dsc::f8e4m3, dsc::f8e5m2, or a type with a specialization of "
                "dsc::dtype_of");
  if constexpr (is_element<T>) return dtype_of<std::remove_cv_t<T>>::value;
  return dtype::u8;  // without this, a second message would follow the one above
}

}  // namespace detail

template <class T>
inline constexpr dtype dtype_of_v = detail::expected_dtype<T>();

static_assert(sizeof(bool) == 1, "the library's bool has one byte");

namespace detail {

// The value for a call of the C interface.
template <class Enum>
constexpr std::underlying_type_t<Enum> value(Enum one) noexcept {
  return static_cast<std::underlying_type_t<Enum>>(one);
}

}  // namespace detail

// Short names, such as "f32" and "sum".
inline const char* name(dtype type) noexcept { return dsc_dtype_name(detail::value(type)); }
inline const char* name(op operation) noexcept { return dsc_op_name(detail::value(operation)); }
inline const char* name(pipe_op operation) noexcept { return dsc_pipe_op_name(detail::value(operation)); }

// The name of a failure, such as "DSC_ERR_TIMEOUT".
inline const char* name(errc code) noexcept { return dsc_result_name(detail::value(code)); }

}  // namespace v0
}  // namespace dsc

#endif  // DSC_CPP_DTYPE_HPP
