// Reports the plans as text and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "dscctl/plan/search.hpp"

namespace dscctl::plan {

using Json = nlohmann::ordered_json;

// Returns one line: what is assumed about network, gradients and memory.
std::string assumptions(const Question& question, const Answer& answer);
std::string table_of(const Answer& answer);
// Returns which plan to choose and why. If none fits, returns the least memory that any plan needs.
std::string recommendation(const Question& question, const Answer& answer);
// Returns what was searched, and which costs the numbers leave out.
std::string remarks(const Question& question, const Layers& layers, const Answer& answer);
// Returns the command that draws a row with its costs.
std::string command_of(const Question& question, const Row& row);
// Returns a page with the best few rows.
std::string page_of_rows(const Question& question, const Answer& answer);
Json json_of(const Question& question, const Layers& layers, const Answer& answer);

}  // namespace dscctl::plan
