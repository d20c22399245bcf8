// Reads fields of a JSON document. Errors contain the location of the field.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>

namespace dscctl::trace {

using Json = nlohmann::json;

struct WrongField : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// One object of a document, and its location, such as "entries[17]".
class Reader {
 public:
  Reader(const Json& object, std::string path);

  int64_t integer(const char* name) const;
  int64_t integer_or(const char* name, int64_t otherwise) const;
  std::optional<int64_t> optional_integer(const char* name) const;  // absent or null: nullopt
  std::string text(const char* name) const;
  std::string text_or_empty(const char* name) const;
  bool flag_or(const char* name, bool otherwise) const;
  Reader object(const char* name) const;
  const Json& list(const char* name) const;
  const Json* find(const char* name) const;  // nullptr: absent or null
  const Json& json() const { return object_; }
  std::string path_of(const char* name) const;

  [[noreturn]] void complain(const char* name, const char* expected, const Json* found) const;

 private:
  const Json& object_;
  std::string path_;
};

// Parses JSON. A syntax error contains line and column, and says if the text ends too early.
Json parse(const std::string& text);

// Never throws, not even for bytes that are not UTF-8, which file names may contain.
std::string text_of(const Json& json, int indent = -1);

}  // namespace dscctl::trace
