// A command line as its parser knows it: what man pages and completions are made from.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tools {

struct OptionOutline {
  std::vector<std::string> names;  // "-o", "--out"; of a positional "DIR"
  std::string value;               // "FILE", or empty: it takes none
  std::string help;
  std::vector<std::string> choices;  // of its value; empty: any
  bool is_positional = false;
  bool is_required = false;
  bool takes_list = false;  // values with commas between them
  bool may_repeat = false;
};

struct CommandOutline {
  std::string name;  // "dscctl trace merge"
  std::string summary;
  std::vector<std::string> usage;  // without "Usage:"
  std::string details, footer;
  std::vector<OptionOutline> options;  // and positionals
  std::vector<CommandOutline> commands;
  bool runs_a_command = false;  // what follows its options is another program's command line

  // "merge"
  std::string last_name() const { return name.substr(name.rfind(' ') + 1); }
};

CommandOutline outline(const CLI::App& app, const std::string& parent = "");

// The name of a validator that makes the words known to completions: "{ssh,mpirun}". CLI::IsMember has it by
// itself.
std::string validator_name(const std::vector<std::string>& words);

// Makes the words known to completions, and checks nothing.
void offer(CLI::Option* option, const std::vector<std::string>& words);

}  // namespace tools
