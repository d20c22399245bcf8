// The built-in hooks by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "reducer/hook.hpp"

namespace dsc {

// Makes the hook that a spec describes. Collective if the hook needs its own group. Throws INVALID_ARG for a
// name, an option or a combination that does not exist.
std::shared_ptr<BucketHook> make_hook(const std::string& spec, Comm& group);

// One line for each hook: its name with all options and their defaults, and what it does.
std::vector<std::string> describe_hooks();

}  // namespace dsc
