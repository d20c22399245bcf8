// dscctl schedule: prints, draws, simulates, converts and checks pipeline schedules.
#pragma once

#include <memory>

#include "dscctl/command.hpp"

namespace dscctl::schedule {

std::unique_ptr<Command> make_command(CLI::App& app);

}  // namespace dscctl::schedule
