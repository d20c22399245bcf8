// The structure of a command line as its parser knows it. Man pages and completions are made from it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tools {

struct OptionOutline {
  std::vector<std::string> names;  // such as "-o" and "--out"; "DIR" for a positional
  std::string value;               // such as "FILE"; empty: the option takes no value
  std::string help;
  std::vector<std::string> choices;  // allowed values; empty: any
  bool is_positional = false;
  bool is_required = false;
  bool takes_list = false;  // comma-separated values
  bool may_repeat = false;
};

struct CommandOutline {
  std::string name;  // such as "dscctl trace merge"
  std::string summary;
  std::vector<std::string> usage;  // without "Usage:"
  std::string details, footer;
  std::vector<OptionOutline> options;  // includes positionals
  std::vector<CommandOutline> commands;
  bool runs_a_command = false;  // the options are followed by the command line of another program

  // Returns "merge" for "dscctl trace merge".
  std::string last_name() const { return name.substr(name.rfind(' ') + 1); }
};

CommandOutline outline(const CLI::App& app, const std::string& parent = "");

// Returns a name for a validator, such as "{ssh,mpirun}", that makes these words known to completions.
// CLI::IsMember sets such a name itself.
std::string validator_name(const std::vector<std::string>& words);

// Makes these words known to completions, without checking values.
void offer(CLI::Option* option, const std::vector<std::string>& words);

}  // namespace tools
