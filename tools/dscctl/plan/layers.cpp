#include "dscctl/plan/layers.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "common/suggest.hpp"
#include "common/text_file.hpp"
#include "common/units.hpp"

namespace dscctl::plan {
namespace {

constexpr const char* kBackward = "backward_us";
constexpr const char* kTied = "tied";

struct Column {
  const char* name;
  double Layer::*value;
  bool is_bytes;
};
constexpr std::array kColumns{Column{"forward_us", &Layer::forward_us, false},
                              Column{"backward_input_us", &Layer::backward_input_us, false},
                              Column{"backward_weight_us", &Layer::backward_weight_us, false},
                              Column{"weight_bytes", &Layer::weight_bytes, true},
                              Column{"activation_bytes", &Layer::activation_bytes, true},
                              Column{"output_bytes", &Layer::output_bytes, true}};

std::vector<std::string> column_names() {
  std::vector<std::string> names{"name"};
  for (const Column& column : kColumns) names.emplace_back(column.name);
  names.insert(names.begin() + 2, kBackward);
  names.emplace_back(kTied);
  return names;
}

// A value and its location in the file, such as "line 3, column 7".
struct Cell {
  std::string text;
  std::string location;
};
using Record = std::map<std::string, Cell>;  // the key is the column

[[noreturn]] void refuse_at(const std::string& location, const std::string& what) {
  throw std::invalid_argument(location + ": " + what);
}

// Returns text such as "layer 3 (block.0)".
std::string layer_text(size_t number, const std::string& name) {
  const std::string text = "layer " + std::to_string(number);
  return name.empty() || name == text ? text : text + " (" + name + ")";
}

void check_name(const std::string& name, const std::string& location) {
  const auto known = column_names();
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  std::string list;
  for (const std::string& one : known) list += (list.empty() ? "" : ", ") + one;
  refuse_at(location, "unknown column '" + name + "'" + tools::did_you_mean(name, known) +
                          ", expected one of: " + list);
}

// Rejects missing columns, and columns that exclude each other.
void check_columns(const std::vector<std::string>& names, const std::string& location) {
  const auto has = [&](const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const bool halves = has("backward_input_us") || has("backward_weight_us");
  if (has(kBackward) && halves)
    refuse_at(location,
              "backward_us is given together with its halves, expected either backward_us or both "
              "backward_input_us and backward_weight_us");
  if (!has(kBackward) && !halves)
    refuse_at(
        location,
        "backward_us is missing, expected backward_us, or both backward_input_us and backward_weight_us");
  for (const Column& column : kColumns)
    if (!has(column.name) && !(has(kBackward) && std::string(column.name).starts_with("backward_")))
      refuse_at(location, std::string(column.name) + " is missing, expected it for every layer");
}

double value_of(const Cell& cell, const std::string& name, bool is_bytes) {
  const auto value = is_bytes ? tools::parse_bytes(cell.text) : tools::parse_number(cell.text);
  if (value) return *value;
  refuse_at(cell.location,
            name + " is '" + cell.text + "', expected " +
                (is_bytes ? "bytes such as 4096 or 12.5MB" : "microseconds such as 120 or 0.5"));
}

Layer layer_of(const Record& record, size_t number) {
  Layer layer;
  const auto name = record.find("name");
  layer.name = name == record.end() ? layer_text(number, "") : name->second.text;
  for (const Column& column : kColumns)
    if (const auto cell = record.find(column.name); cell != record.end())
      layer.*column.value = value_of(cell->second, column.name, column.is_bytes);
  if (const auto cell = record.find(kTied); cell != record.end()) layer.tied = cell->second.text;
  if (const auto cell = record.find(kBackward); cell != record.end())
    layer.backward_input_us = layer.backward_weight_us = value_of(cell->second, kBackward, false) / 2;
  return layer;
}

std::string location_of(size_t line, size_t column) {
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r"), last = text.find_last_not_of(" \t\r");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

// Reads one field that starts at `at`, and moves `at` to the next comma or past the end.
std::string field_at(const std::string& line, size_t& at, size_t number) {
  const size_t first = line.find_first_not_of(" \t", at);
  if (first == std::string::npos || line[first] != '"') {
    const size_t begin = at;
    at = std::min(line.find(',', begin), line.size());
    return trimmed(line.substr(begin, at - begin));
  }
  std::string text;
  for (at = first + 1; at < line.size() && (line[at] != '"' || line.substr(at, 2) == "\"\""); ++at) {
    text += line[at];
    if (line[at] == '"') ++at;
  }
  if (at >= line.size()) refuse_at(location_of(number, first + 1), "expected a closing quote");
  const size_t comma = std::min(line.find(',', at), line.size());
  if (!trimmed(line.substr(at + 1, comma - at - 1)).empty())
    refuse_at(location_of(number, at + 2), "text after a closing quote, expected a comma");
  at = comma;
  return text;
}

std::vector<Cell> cells_of(const std::string& line, size_t number) {
  std::vector<Cell> cells;
  for (size_t at = 0; at <= line.size(); ++at) {
    const size_t first = std::min(line.find_first_not_of(" \t", at), line.size());
    const std::string location = location_of(number, first + 1);
    cells.push_back({field_at(line, at, number), location});
  }
  return cells;
}

std::vector<std::string> header_of(const std::string& line, size_t number) {
  std::vector<std::string> names;
  for (const Cell& cell : cells_of(line, number)) {
    check_name(cell.text, cell.location);
    if (std::find(names.begin(), names.end(), cell.text) != names.end())
      refuse_at(cell.location, "column '" + cell.text + "' occurs twice, expected each column once");
    names.push_back(cell.text);
  }
  check_columns(names, "line " + std::to_string(number));
  return names;
}

std::vector<Record> csv_records(const std::string& text) {
  std::vector<std::string> lines = tools::split(text, '\n'), names;
  while (!lines.empty() && trimmed(lines.back()).empty()) lines.pop_back();
  std::vector<Record> records;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (trimmed(lines[i]).empty()) refuse_at(location_of(i + 1, 1), "the line is empty, expected a layer");
    if (i == 0) {
      names = header_of(lines[i], 1);
      continue;
    }
    const std::vector<Cell> cells = cells_of(lines[i], i + 1);
    if (cells.size() != names.size())
      refuse_at(cells.size() > names.size() ? cells[names.size()].location
                                            : location_of(i + 1, lines[i].size() + 1),
                std::to_string(cells.size()) + " values, expected " + std::to_string(names.size()) +
                    ", like line 1");
    Record& record = records.emplace_back();
    for (size_t k = 0; k < cells.size(); ++k) record[names[k]] = cells[k];
  }
  return records;
}

using LayersJson = nlohmann::json;

std::string name_of(const LayersJson& object) {
  const auto name = object.is_object() ? object.find("name") : object.end();
  return name != object.end() && name->is_string() ? name->get<std::string>() : "";
}

// Parses JSON and rejects keys that occur twice in an object, because the parser would keep only the last
// value.
LayersJson parse_json(const std::string& text) {
  std::set<std::string> keys;
  const auto look = [&](int, LayersJson::parse_event_t event, const LayersJson& value) {
    if (event == LayersJson::parse_event_t::object_start) keys.clear();
    if (event == LayersJson::parse_event_t::key && !keys.insert(value.get<std::string>()).second)
      throw std::invalid_argument("'" + value.get<std::string>() + "' occurs twice in a layer");
    return true;
  };
  try {
    return LayersJson::parse(text, look);
  } catch (const LayersJson::parse_error& error) {
    const std::string words = error.what();  // such as "[...] parse error at line 1, column 5: ..."
    const size_t line = words.find("line ");
    throw std::invalid_argument(line == std::string::npos ? words : words.substr(line));
  }
}

std::vector<Record> json_records(const std::string& text) {
  const LayersJson json = parse_json(text);
  if (!json.is_array()) throw std::invalid_argument("expected a list of layers");
  std::vector<Record> records;
  for (const LayersJson& object : json) {
    const std::string location = layer_text(records.size(), name_of(object));
    if (!object.is_object()) refuse_at(location, "expected an object such as {\"forward_us\": 120, ...}");
    std::vector<std::string> names;
    Record& record = records.emplace_back();
    for (const auto& [name, value] : object.items()) {
      check_name(name, location);
      if (name == kTied && value.is_null()) continue;
      names.push_back(name);
      if (name == kTied && !value.is_string())
        refuse_at(location, "tied is " + value.dump() + ", expected a string or null");
      record[name] = {value.is_string() ? value.get<std::string>() : value.dump(), location};
    }
    check_columns(names, location);
  }
  return records;
}

// Layers with the same name in `tied` share their weights, so they must have equal sizes.
void check_ties(const std::vector<Layer>& layers) {
  // For each name, the first layer and the number of layers.
  std::map<std::string, std::pair<size_t, size_t>> ties;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].tied.empty()) continue;
    const size_t first = ties.try_emplace(layers[i].tied, i, 0).first->second.first;
    ++ties[layers[i].tied].second;
    if (layers[i].weight_bytes != layers[first].weight_bytes)
      refuse_at(layer_text(i, layers[i].name),
                "weight_bytes is " + tools::exact_text(layers[i].weight_bytes) + ", expected " +
                    tools::exact_text(layers[first].weight_bytes) + " as in " +
                    layer_text(first, layers[first].name) + ", which has the same tied name '" +
                    layers[i].tied + "'; put weights that are not shared into a separate layer");
  }
  for (const auto& [name, tie] : ties)
    if (tie.second == 1)
      refuse_at(layer_text(tie.first, layers[tie.first].name),
                "tied is '" + name + "', expected a name that at least two layers have");
}

Layers layers_of(std::string text) {
  // A byte order mark, which spreadsheet programs write.
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) throw std::invalid_argument("is empty, expected layers as CSV or JSON");
  const bool is_json = text[first] == '[' || text[first] == '{';
  Layers layers;
  for (const Record& record : is_json ? json_records(text) : csv_records(text)) {
    layers.all.push_back(layer_of(record, layers.all.size()));
    layers.are_split = layers.are_split || record.count(kBackward) > 0;
  }
  if (layers.all.empty()) throw std::invalid_argument("has no layers, expected one or more");
  check_ties(layers.all);
  return layers;
}

}  // namespace

Layers read_layers(const std::string& path) {
  try {
    return layers_of(tools::text_of_file(path));
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument((path == "-" ? "stdin" : path) + ": " + error.what());
  }
}

}  // namespace dscctl::plan
