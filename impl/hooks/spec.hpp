// The description of a hook as a text: a name, options in parentheses, and for a wrapper the inner hook, such
// as "bf16(powersgd(rank=4, start_iteration=100))".
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace dsc {

struct HookSpec {
  struct Option {
    std::string key;
    std::string value;
  };
  std::string name;
  std::vector<Option> options;
  std::unique_ptr<HookSpec> inner;  // null: none
};

// Throws INVALID_ARG, with the position, for a text that is malformed.
HookSpec parse_hook_spec(std::string_view text);

}  // namespace dsc
