#include "json.hpp"

#include <algorithm>
#include <istream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

namespace support {

struct Json::Tree {
  using Node = nlohmann::ordered_json;

  static Json from(const Node& node) {
    switch (node.type()) {
      case Node::value_t::boolean:
        return node.get<bool>();
      case Node::value_t::number_integer:
        return node.get<int64_t>();
      case Node::value_t::number_unsigned:
        return node.get<uint64_t>();
      case Node::value_t::number_float:
        return node.get<double>();
      case Node::value_t::string:
        return node.get_ref<const std::string&>();
      case Node::value_t::array: {
        Json json = array();
        json.values_.reserve(node.size());
        for (const Node& value : node) json.values_.push_back(from(value));
        return json;
      }
      case Node::value_t::object: {
        Json json = object();
        json.members_.reserve(node.size());
        for (const auto& [name, value] : node.items()) json.members_.push_back({name, from(value)});
        return json;
      }
      default:
        return nullptr;
    }
  }

  static Node to(const Json& json) {
    switch (json.kind_) {
      case Kind::kNull:
        return nullptr;
      case Kind::kFalse:
      case Kind::kTrue:
        return json.kind_ == Kind::kTrue;
      case Kind::kNegative:
        return json.negative_;
      case Kind::kNatural:
        return json.natural_;
      case Kind::kReal:
        return json.real_;
      case Kind::kString:
        return json.text_;
      case Kind::kArray: {
        Node node = Node::array();
        for (const Json& value : json.values_) node.push_back(to(value));
        return node;
      }
      case Kind::kObject: {
        Node node = Node::object();
        for (const Member& member : json.members_) node[member.name] = to(member.value);
        return node;
      }
    }
    return nullptr;
  }
};

Json::Json(std::nullptr_t) {}
Json::Json(const char* text) : Json(std::string(text)) {}
Json::Json(std::string text) : kind_(Kind::kString), text_(std::move(text)) {}
Json::Json(std::vector<Json> values) : kind_(Kind::kArray), values_(std::move(values)) {}
Json::Json(std::initializer_list<Json> values) : kind_(Kind::kArray), values_(values) {}
Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;

void Json::set_negative(int64_t value) {
  kind_ = Kind::kNegative;
  negative_ = value;
}

void Json::set_natural(uint64_t value) {
  kind_ = Kind::kNatural;
  natural_ = value;
}

void Json::set_real(double value) {
  kind_ = Kind::kReal;
  real_ = value;
}

Json Json::array(std::initializer_list<Json> values) {
  Json json;
  json.kind_ = Kind::kArray;
  json.values_ = values;
  return json;
}

Json Json::object(std::initializer_list<Member> members) {
  Json json;
  json.kind_ = Kind::kObject;
  json.members_ = members;
  return json;
}

Json Json::parse(const std::string& text) try {
  return Tree::from(Tree::Node::parse(text));
} catch (const nlohmann::detail::exception& error) {
  throw JsonError(error.what());
}

Json Json::parse_or_null(const std::string& text) {
  return Tree::from(Tree::Node::parse(text, nullptr, false));
}

Json Json::parse_or_null(std::istream& text) {
  return parse_or_null(std::string(std::istreambuf_iterator<char>(text), {}));
}

bool Json::accept(const std::string& text) { return Tree::Node::accept(text); }

std::string Json::dump() const { return Tree::to(*this).dump(); }

void Json::fail_kind(const char* expected) const {
  throw JsonError("expected " + std::string(expected) + ", got " + dump().substr(0, 300));
}

size_t Json::size() const {
  if (is_null()) return 0;
  return is_object() ? members_.size() : array_values().size();
}

const std::vector<Json>& Json::array_values() const {
  if (!is_array()) fail_kind("a list");
  return values_;
}

const std::vector<Json>& Json::values() const { return is_null() ? values_ : array_values(); }

const std::vector<Json::Member>& Json::items() const {
  if (!is_object()) fail_kind("an object");
  return members_;
}

const Json* Json::find(const std::string& name) const {
  const auto found = std::ranges::find(items(), name, &Member::name);
  return found == members_.end() ? nullptr : &found->value;
}

bool Json::contains(const std::string& name) const { return is_object() && find(name); }

const Json& Json::at(const std::string& name) const {
  if (const Json* const found = find(name)) return *found;
  throw JsonError("no \"" + name + "\" in " + dump().substr(0, 300));
}

const Json& Json::at(size_t position) const {
  if (position < array_values().size()) return values_[position];
  throw JsonError("no position " + std::to_string(position) + " in " + dump().substr(0, 300));
}

Json& Json::operator[](const std::string& name) {
  if (is_null()) kind_ = Kind::kObject;
  if (const Json* const found = find(name)) return const_cast<Json&>(*found);
  members_.push_back({name, nullptr});
  return members_.back().value;
}

void Json::push_back(Json value) {
  if (is_null()) kind_ = Kind::kArray;
  array_values();  // throws if it is not a list
  values_.push_back(std::move(value));
}

void Json::read(bool& value) const {
  if (kind_ != Kind::kFalse && kind_ != Kind::kTrue) fail_kind("true or false");
  value = kind_ == Kind::kTrue;
}

void Json::read(double& value) const {
  if (!is_number()) fail_kind("a number");
  if (kind_ == Kind::kNegative)
    value = static_cast<double>(negative_);
  else
    value = kind_ == Kind::kNatural ? static_cast<double>(natural_) : real_;
}

void Json::read(std::string& value) const {
  if (!is_string()) fail_kind("a text");
  value = text_;
}

int64_t Json::to_signed(int64_t least, int64_t most) const {
  if (kind_ == Kind::kNegative && negative_ >= least) return negative_;
  if (kind_ == Kind::kNatural && natural_ <= static_cast<uint64_t>(most))
    return static_cast<int64_t>(natural_);
  fail_kind(("an integer from " + std::to_string(least) + " to " + std::to_string(most)).c_str());
}

uint64_t Json::to_unsigned(uint64_t most) const {
  if (kind_ == Kind::kNatural && natural_ <= most) return natural_;
  fail_kind(("an integer from 0 to " + std::to_string(most)).c_str());
}

bool Json::operator==(const Json& other) const {
  if (is_number() && other.is_number() && (kind_ == Kind::kReal || other.kind_ == Kind::kReal))
    return get<double>() == other.get<double>();
  if (kind_ != other.kind_) return false;
  switch (kind_) {
    case Kind::kNegative:
    case Kind::kNatural:
      return natural_ == other.natural_;
    case Kind::kString:
      return text_ == other.text_;
    case Kind::kArray:
      return values_ == other.values_;
    case Kind::kObject:
      return members_.size() == other.members_.size() && std::ranges::all_of(members_, [&](const Member& m) {
               const Json* const found = other.find(m.name);
               return found && *found == m.value;
             });
    default:
      return true;
  }
}

}  // namespace support
