// dscctl plan: compares schedules and numbers of stages, chunks and micro-batches for a model, and recommends
// a combination.
#pragma once

#include <memory>

#include "dscctl/command.hpp"

namespace dscctl::plan {

std::unique_ptr<Command> make_command(CLI::App& app);

}  // namespace dscctl::plan
