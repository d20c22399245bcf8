#include "dscctl/trace/reader.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

namespace dscctl::trace {
namespace {

constexpr size_t kShownBytes = 40;

std::string shown(const Json& value) {
  if (value.is_object() || value.is_array()) return value.is_object() ? "an object" : "a list";
  std::string text = text_of(value);
  if (text.size() <= kShownBytes) return text;
  size_t end = kShownBytes - 3;
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;  // do not cut inside a UTF-8 character
  return text.substr(0, end) + "...";
}

std::string line_and_column(const std::string& text, size_t byte) {
  const size_t end = std::min(byte == 0 ? 0 : byte - 1, text.size());
  const auto until = text.begin() + static_cast<std::ptrdiff_t>(end);
  const auto line = std::count(text.begin(), until, '\n') + 1;
  const size_t newline = text.substr(0, end).rfind('\n');
  const size_t column = newline == std::string::npos ? end + 1 : end - newline;
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

}  // namespace

Reader::Reader(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
  if (object.is_object()) return;
  throw WrongField((path_.empty() ? "the document" : path_) + ": expected an object, found " + shown(object));
}

std::string Reader::path_of(const char* name) const { return path_.empty() ? name : path_ + "." + name; }

void Reader::complain(const char* name, const char* expected, const Json* found) const {
  throw WrongField(path_of(name) + ": expected " + expected + ", " +
                   (found == nullptr ? "but it is missing" : "found " + shown(*found)));
}

const Json* Reader::find(const char* name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

int64_t Reader::integer(const char* name) const {
  const Json* found = find(name);
  if (found == nullptr || !found->is_number_integer()) complain(name, "a whole number", found);
  return found->get<int64_t>();
}

int64_t Reader::integer_or(const char* name, int64_t otherwise) const {
  return find(name) == nullptr ? otherwise : integer(name);
}

std::optional<int64_t> Reader::optional_integer(const char* name) const {
  if (find(name) == nullptr) return std::nullopt;
  return integer(name);
}

std::string Reader::text(const char* name) const {
  const Json* found = find(name);
  if (found == nullptr || !found->is_string()) complain(name, "a text", found);
  return found->get<std::string>();
}

std::string Reader::text_or_empty(const char* name) const { return find(name) == nullptr ? "" : text(name); }

bool Reader::flag_or(const char* name, bool otherwise) const {
  const Json* found = find(name);
  if (found == nullptr) return otherwise;
  if (!found->is_boolean()) complain(name, "true or false", found);
  return found->get<bool>();
}

Reader Reader::object(const char* name) const {
  const Json* found = find(name);
  if (found == nullptr) complain(name, "an object", found);
  return Reader(*found, path_of(name));
}

const Json& Reader::list(const char* name) const {
  const Json* found = find(name);
  if (found == nullptr || !found->is_array()) complain(name, "a list", found);
  return *found;
}

std::string text_of(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Json parse(const std::string& text) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) throw WrongField("the file is empty");
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    const bool cut = error.byte > text.size();
    throw WrongField(line_and_column(text, error.byte) + ": " +
                     (cut ? "the JSON text ends too early; the file may be truncated" : "not valid JSON"));
  }
}

}  // namespace dscctl::trace
