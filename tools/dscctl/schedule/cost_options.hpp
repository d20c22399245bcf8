// What operations, messages and memory cost, from the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <array>
#include <string>

#include "dscctl/schedule/handle.hpp"

namespace dscctl::schedule {

class CostOptions {
 public:
  void add_to(CLI::App& app);

  // Throws std::invalid_argument with the option that is wrong.
  Costs costs() const;
  // Times are then microseconds.
  bool has_network() const { return !network_.empty(); }
  // Lists have one value, or one for each stage or each part of the model. Throws std::invalid_argument.
  void expect_parts(const Costs& costs, int32_t stages, int32_t chunks) const;
  // No list has a value for each stage, where it is not known which parts a stage has. Throws the same.
  void expect_no_stages(const Costs& costs, int32_t stages, int32_t chunks) const;

 private:
  struct List {
    const char* option;
    const char* help;
    std::vector<double> Costs::*values;
    bool are_bytes;
    std::string text = {};
  };
  struct Value {
    const char* option;
    const char* help;
    double Costs::*value;
    double (*read)(const std::string& option, const std::string& text);
    const char* type;
    std::string text = {};
  };

  std::string network_;
  std::array<List, 7> lists_ = make_lists();
  std::array<Value, 6> values_ = make_values();

  static std::array<List, 7> make_lists();
  static std::array<Value, 6> make_values();
};

// Of an option: not empty, and not -, as stdout is for what is printed.
CLI::Validator file_to_write();

// A list as the command line takes it: "2x30" is 30 twice.
std::string list_text(const std::vector<std::string>& values);

}  // namespace dscctl::schedule
