// What was found, for people and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "dscctl/plan/search.hpp"

namespace dscctl::plan {

using Json = nlohmann::ordered_json;

// One line: what the network, gradients and memory were taken to be.
std::string assumptions(const Question& question, const Answer& answer);
std::string table_of(const Answer& answer);
// Which to take, and why; or what the least memory is that any needs.
std::string recommendation(const Question& question, const Answer& answer);
// What was looked at, and what the numbers leave out.
std::string remarks(const Question& question, const Layers& layers, const Answer& answer);
// Draws a row with its costs.
std::string command_of(const Question& question, const Row& row);
// The best few, as a page.
std::string page_of_rows(const Question& question, const Answer& answer);
Json json_of(const Question& question, const Layers& layers, const Answer& answer);

}  // namespace dscctl::plan
