// dscctl plan: compares schedules, stages, chunks and micro-batches for a model, and recommends one.
#pragma once

#include <memory>

#include "dscctl/command.hpp"

namespace dscctl::plan {

std::unique_ptr<Command> make_command(CLI::App& app);

}  // namespace dscctl::plan
