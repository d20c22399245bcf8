// dscctl bench: measures how fast the library is on this machine, which algorithms it uses and why, and which
// settings are best.
#pragma once

#include <memory>

#include "dscctl/command.hpp"

namespace dscctl::bench {

std::unique_ptr<Command> make_command(CLI::App& app);

}  // namespace dscctl::bench
