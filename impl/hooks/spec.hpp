// The description of a hook, parsed from a text such as "bf16(powersgd(rank=4, start_iteration=100))". It
// consists of a name, options in parentheses, and for a wrapper the inner hook.
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
  std::unique_ptr<HookSpec> inner;  // the inner hook of a wrapper, otherwise null
};

// Throws INVALID_ARG for a malformed text; the message contains the position.
HookSpec parse_hook_spec(std::string_view text);

}  // namespace dsc
