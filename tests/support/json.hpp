// JSON for tests. The JSON library costs compile time of seconds in every program that includes it, so only
// json.cpp does. A missing value or a value of another kind throws a JsonError, which names its position.
#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace support {

class JsonError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <typename T>
concept JsonNumber = std::is_arithmetic_v<T> && !std::same_as<T, bool> && !std::same_as<T, char>;

class Json {
 public:
  struct Member;

  Json(std::nullptr_t = nullptr);
  Json(std::same_as<bool> auto value) { set_bool(value); }
  template <JsonNumber T>
  Json(T value) {
    if constexpr (std::floating_point<T>)
      set_real(static_cast<double>(value));
    else if (value < 0)
      set_negative(static_cast<int64_t>(value));
    else
      set_natural(static_cast<uint64_t>(value));
  }
  Json(const char* text);
  Json(std::string text);
  Json(std::vector<Json> values);
  template <typename T>
  Json(const std::vector<T>& values) : Json(std::vector<Json>(values.begin(), values.end())) {}
  template <typename Map>
  requires requires { typename Map::mapped_type; }
  Json(const Map& members) : Json(object()) {
    for (const auto& [name, value] : members) (*this)[name] = value;
  }
  Json(std::initializer_list<Json> values);  // always a list
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();

  static Json array(std::initializer_list<Json> values = {});
  static Json object(std::initializer_list<Member> members = {});
  static Json parse(const std::string& text);
  static Json parse_or_null(const std::string& text);
  static Json parse_or_null(std::istream& text);
  static bool accept(const std::string& text);
  std::string dump() const;

  bool is_null() const { return kind_ == Kind::kNull; }
  bool is_array() const { return kind_ == Kind::kArray; }
  bool is_object() const { return kind_ == Kind::kObject; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_number() const { return kind_ >= Kind::kNegative && kind_ <= Kind::kReal; }

  // The size of a list or an object; null has size 0.
  size_t size() const;
  bool empty() const { return size() == 0; }
  bool contains(const std::string& name) const;
  const Json& at(const std::string& name) const;
  const Json& at(size_t position) const;
  const Json& operator[](size_t position) const { return at(position); }
  Json& operator[](size_t position) { return const_cast<Json&>(at(position)); }
  const Json& operator[](const std::string& name) const { return at(name); }
  Json& operator[](const std::string& name);  // a new name gets the value null
  // These are templates because a literal 0 would also match a plain pointer.
  template <std::same_as<char> Char>
  const Json& operator[](const Char* name) const {
    return at(std::string(name));
  }
  template <std::same_as<char> Char>
  Json& operator[](const Char* name) {
    return (*this)[std::string(name)];
  }
  const std::vector<Json>& values() const;
  auto begin() const { return values().begin(); }
  auto end() const { return values().end(); }
  const std::vector<Member>& items() const;
  void push_back(Json value);

  template <typename T>
  T get() const {
    T value{};
    read(value);
    return value;
  }
  // Returns the default if there is no such name.
  template <typename T>
  T value(const std::string& name, const T& otherwise) const {
    const Json* const found = find(name);
    if constexpr (std::same_as<T, Json>)
      return found ? *found : otherwise;
    else
      return found ? found->get<T>() : otherwise;
  }
  std::string value(const std::string& name, const char* otherwise) const {
    return value(name, std::string(otherwise));
  }
  operator std::string() const { return get<std::string>(); }
  template <typename T>
  requires JsonNumber<T> || std::same_as<T, bool>
  operator T() const { return get<T>(); }

  // Numbers are compared by value. The order of names does not matter.
  bool operator==(const Json& other) const;
  template <typename T>
  bool operator==(const T& other) const {
    return *this == Json(other);
  }
  template <JsonNumber T>
  std::partial_ordering operator<=>(T other) const {
    return get<T>() <=> other;
  }

 private:
  enum class Kind { kNull, kFalse, kTrue, kNegative, kNatural, kReal, kString, kArray, kObject };
  struct Tree;  // a tree of the JSON library

  void set_bool(bool value) { kind_ = value ? Kind::kTrue : Kind::kFalse; }
  void set_negative(int64_t value);
  void set_natural(uint64_t value);
  void set_real(double value);

  void read(bool& value) const;
  void read(double& value) const;
  void read(std::string& value) const;
  template <std::floating_point T>
  void read(T& value) const {
    value = static_cast<T>(get<double>());
  }
  template <std::signed_integral T>
  void read(T& value) const {
    value = static_cast<T>(to_signed(std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
  }
  template <std::unsigned_integral T>
  void read(T& value) const {
    value = static_cast<T>(to_unsigned(std::numeric_limits<T>::max()));
  }
  template <typename T>
  void read(std::vector<T>& list) const {
    for (const Json& value : array_values()) list.push_back(value.get<T>());
  }
  int64_t to_signed(int64_t least, int64_t most) const;
  uint64_t to_unsigned(uint64_t most) const;
  const std::vector<Json>& array_values() const;
  const Json* find(const std::string& name) const;
  [[noreturn]] void fail_kind(const char* expected) const;

  Kind kind_ = Kind::kNull;
  union {
    int64_t negative_;
    uint64_t natural_ = 0;
    double real_;
  };
  std::string text_;
  std::vector<Json> values_;     // of a list
  std::vector<Member> members_;  // of an object, in their order
};

struct Json::Member {
  std::string name;
  Json value;
};

}  // namespace support
