// dscctl trace: shows what the ranks of a job recorded.
#pragma once

#include <memory>

#include "dscctl/command.hpp"

namespace dscctl::trace {

std::unique_ptr<Command> make_command(CLI::App& app);

}  // namespace dscctl::trace
