// Reports measurements as text and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "dscctl/bench/measure.hpp"

namespace dscctl::bench {

using Json = nlohmann::ordered_json;

int allowed_processors();  // processors that the ranks may use, because they inherit this process's mask

double gigabytes_per_second(const Row& row);  // 0 if the operation moves no data
std::string microseconds_text(double us);     // without the unit

std::string headline(const Operation& operation, int ranks, bool explain);
std::string row_text(const Row& row, int ranks, bool explain);
// A table of many operations: a column for each size, and a line for each kind of buffer.
std::string table_head(const std::vector<size_t>& sizes, int ranks);
std::string table_lines(const Operation& operation, const std::vector<Row>& rows);
// Explains why times are long for reasons outside the library: more ranks than processors, or other programs.
// Returns an empty text if there is no such reason.
std::string turns_text(const std::vector<Row>& rows, int ranks, bool explain);
// Explains why the algorithms of the rows were chosen, with the current values of the settings.
std::string reasons_text(const Facts& facts, const std::vector<Row>& rows);
// Names rows as ./dev bench does. In "tuning", settings are listed by number of ranks.
void add_to_json(Json& report, const Facts& facts, const std::vector<Row>& rows, int ranks);

const char* engine_name(const Case& one);  // the name that ./dev bench uses

// Returns text such as "128 KiB" or "no limit".
std::string setting_text(size_t value);

}  // namespace dscctl::bench
