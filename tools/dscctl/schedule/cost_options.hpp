// Options of the command line for the costs of operations, messages and memory.
#pragma once

#include <CLI/CLI.hpp>
#include <array>
#include <string>

#include "dscctl/schedule/handle.hpp"

namespace dscctl::schedule {

class CostOptions {
 public:
  void add_to(CLI::App& app);

  // Throws std::invalid_argument with the name of the option that is wrong.
  Costs costs() const;
  // True if the costs come from a network file. Times are then in microseconds.
  bool has_network() const { return !network_.empty(); }
  // Throws std::invalid_argument unless each list has one value, one for each stage, or one for each part of
  // the model.
  void expect_parts(const Costs& costs, int32_t stages, int32_t chunks) const;
  // Throws std::invalid_argument if a list has one value for each stage, while it is not known which parts a
  // stage has.
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

// Returns a list in the syntax of the command line. For example, "2x30" is 30 twice.
std::string list_text(const std::vector<std::string>& values);

}  // namespace dscctl::schedule
