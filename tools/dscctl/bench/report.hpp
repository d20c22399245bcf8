// What was measured, for people and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "dscctl/bench/measure.hpp"

namespace dscctl::bench {

using Json = nlohmann::ordered_json;

int allowed_processors();  // for the ranks, which inherit them

std::string headline(const Operation& operation, int ranks, bool explain);
std::string row_text(const Row& row, int ranks, bool explain);
// What makes times long that is no fault of the library: more ranks than processors, or other programs. Empty
// if there is nothing of it.
std::string turns_text(const std::vector<Row>& rows, int ranks, bool explain);
// Why the algorithms of the rows were chosen, with the sizes that hold now.
std::string reasons_text(const Facts& facts, const std::vector<Row>& rows);
// Rows are named as those of ./dev bench; "tuning" is by number of ranks.
void add_to_json(Json& report, const Facts& facts, const std::vector<Row>& rows, int ranks);

const char* engine_name(const Case& one);  // as ./dev bench calls it

// "128 KiB", "no limit"
std::string setting_text(size_t value);

}  // namespace dscctl::bench
