#include "hooks/spec.hpp"

#include <cctype>

#include "base/error.hpp"

namespace dsc {
namespace {

constexpr int kDeepest = 4;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  HookSpec read_all() {
    HookSpec spec = read(1);
    if (at_ < text_.size()) complain("the end of the text");
    return spec;
  }

 private:
  // Grammar: name [ "(" item { "," item } ")" ]. An item is key "=" value, or a hook.
  HookSpec read(int depth) {
    HookSpec spec;
    spec.name = word("the name of a hook");
    if (!skip('(')) return spec;
    if (skip(')')) return spec;
    do {
      read_item(spec, depth);
    } while (skip(','));
    if (!skip(')')) complain("\",\" or \")\"");
    return spec;
  }

  void read_item(HookSpec& spec, int depth) {
    const size_t start = at_;
    std::string key = word("an option or a hook");
    if (skip('=')) {
      spec.options.push_back({std::move(key), word("a value")});
      return;
    }
    if (spec.inner || depth == kDeepest) complain("an option, as key=value");
    at_ = start;
    spec.inner = std::make_unique<HookSpec>(read(depth + 1));
  }

  static bool is_part_of_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-' || c == '+';
  }

  std::string word(const char* what) {
    skip_spaces();
    const size_t start = at_;
    while (at_ < text_.size() && is_part_of_word(text_[at_])) ++at_;
    if (at_ == start) complain(what);
    std::string found(text_.substr(start, at_ - start));
    skip_spaces();
    return found;
  }

  bool skip(char c) {
    skip_spaces();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    skip_spaces();
    return true;
  }

  void skip_spaces() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }

  [[noreturn]] void complain(const char* expected) const {
    const std::string rest(text_.substr(at_, 20));
    fail(DSC_ERR_INVALID_ARG, "hook \"%s\": expected %s at character %zu, got %s", std::string(text_).c_str(),
         expected, at_ + 1, rest.empty() ? "the end of the text" : ("\"" + rest + "\"").c_str());
  }

  const std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

HookSpec parse_hook_spec(std::string_view text) { return Parser(text).read_all(); }

}  // namespace dsc
