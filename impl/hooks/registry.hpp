// Creates the built-in hooks by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "reducer/hook.hpp"

namespace dsc {

// Creates the hook that a spec describes. Collective if the hook needs a group for itself. Throws INVALID_ARG
// for an unknown name or option, or an invalid combination.
std::shared_ptr<BucketHook> make_hook(const std::string& spec, Comm& group);

// Returns one line per hook: its name, all options with their defaults, and what the hook does.
std::vector<std::string> describe_hooks();

}  // namespace dsc
