#include <algorithm>

#include "common/reference/reference.hpp"

namespace tools {
namespace {

// Escapes text inside the quotes and brackets of a specification for _arguments.
std::string quoted(const std::string& text) {
  std::string out;
  for (const char letter : text) {
    if (std::string("[]:\\").find(letter) != std::string::npos) out += '\\';
    out += letter == '\'' ? "'\\''" : std::string(1, letter);
  }
  return out;
}

std::string function_of(const CommandOutline& command) {
  std::string name = "_" + command.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

std::string zsh_action_of(const OptionOutline& option) {
  const std::string words = CLI::detail::join(option.choices, " ");
  if (!option.choices.empty()) return option.takes_list ? "_values -s , word " + words : "(" + words + ")";
  const std::string value = option.is_positional ? option.names.front() : option.value;
  if (value == "FILE" || value == "PATH") return "_files";
  return value == "DIR" ? "_files -/" : "";
}

// In _arguments, `-o+` takes its value in the same word or in the next one, and `--out=` in the next word or
// after the equals sign.
std::string spec_of(const OptionOutline& option) {
  const bool takes_value = !option.value.empty();
  const std::string what =
      "[" + quoted(option.help) + "]" +
      (takes_value ? ":" + quoted(option.value) + ":" + quoted(zsh_action_of(option)) : std::string());
  std::string specs;
  for (const std::string& name : option.names) {
    const char* sign = !takes_value ? "" : name.starts_with("--") ? "=" : "+";
    const std::string once = option.may_repeat ? "*" : "(" + CLI::detail::join(option.names, " ") + ")";
    specs += " \\\n    '" + once + name + sign + what + "'";
  }
  return specs;
}

std::string specs_of(const CommandOutline& command) {
  std::string specs;
  for (const OptionOutline& option : command.options)
    if (!option.is_positional) specs += spec_of(option);
  for (const OptionOutline& option : command.options)
    if (option.is_positional)
      specs += std::string(" \\\n    '") +
               (option.may_repeat    ? "*"
                : option.is_required ? "1"
                                     : ":") +
               ":" + quoted(option.names.front()) + ":" + quoted(zsh_action_of(option)) + "'";
  if (command.runs_a_command)
    specs += " \\\n    '(-)1:command:_command_names -e' \\\n    '*::arguments:_normal'";
  return specs;
}

std::string function_text(const CommandOutline& command) {
  const std::string name = function_of(command);
  if (command.commands.empty()) return "\n" + name + "() {\n  _arguments -s" + specs_of(command) + "\n}\n";
  std::string words, functions;
  for (const CommandOutline& one : command.commands) {
    words += "\n        '" + quoted(one.last_name()) + ":" + quoted(one.summary) + "'";
    functions += function_text(one);
  }
  return functions + "\n" + name +
         "() {\n  local curcontext=$curcontext state line\n  local -a commands\n  _arguments -C" +
         specs_of(command) +
         " \\\n    '1: :->command' \\\n    '*:: :->rest'\n  case $state in\n    command)\n" +
         "      commands=(" + words + "\n      )\n      _describe -t commands command commands\n      ;;\n" +
         "    rest) (($+functions[" + name + "_$words[1]])) && " + name + "_$words[1] ;;\n  esac\n}\n";
}

}  // namespace

std::string zsh_completion(const CommandOutline& program) {
  return "#compdef " + program.name + "\n# Made from its options by " + program.name + " --help-as zsh.\n" +
         function_text(program) + "\n" + function_of(program) + " \"$@\"\n";
}

}  // namespace tools
