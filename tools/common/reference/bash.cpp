#include "common/reference/reference.hpp"

namespace tools {
namespace {

// Walks through the words before the one to complete. `command` becomes, for example, "dscctl trace merge",
// and `action` says what can follow. The generated tables that this function uses are printed before it. Bash
// splits --svg=FILE into three words.
constexpr const char* kWalk = R"sh(
_@_complete() {
  local action=$1 current=$2 kept
  case $action in
    words\ *) mapfile -t COMPREPLY < <(compgen -W "${action#words }" -- "$current") ;;
    list\ *)
      kept=${current%"${current##*,}"}
      mapfile -t COMPREPLY < <(compgen -P "$kept" -W "${action#list }" -- "${current##*,}")
      compopt -o nospace 2>/dev/null
      ;;
    files | folders)
      [[ $action == folders ]] && action=-d || action=-f
      mapfile -t COMPREPLY < <(compgen "$action" -- "$current")
      compopt -o filenames 2>/dev/null
      ;;
  esac
}

_@() {
  local command=@ current=${COMP_WORDS[COMP_CWORD]} word action i
  COMPREPLY=()
  [[ $current != = ]] || current=
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if [[ $word == -?* && $word != -- ]]; then
      action=$(_@_value "$command $word")
      [[ -n $action ]] || continue
      ((++i))
      [[ ${COMP_WORDS[i]} != = ]] || ((++i))
      ((i < COMP_CWORD)) || { _@_complete "$action" "$current"; return; }
    elif [[ " $(_@_commands "$command") " == *" $word "* ]]; then
      command+=" $word"
    elif [[ $(_@_value "$command") == command ]]; then
      [[ $word != -- ]] || ((++i))
      _@_other "$i"
      return
    fi
  done
  if [[ $current == -* ]]; then
    _@_complete "words $(_@_options "$command")" "$current"
  else
    _@_complete "words $(_@_commands "$command")" "$current"
    action=$(_@_value "$command")
    [[ $action != command ]] || _@_other "$COMP_CWORD"
    [[ $action == command || -z $action ]] || _@_complete "$action" "$current"
  fi
}

complete -F _@ @
)sh";

// The command line of another program starts at word $1. bash-completion completes it with that program's own
// completion.
constexpr const char* kOther = R"sh(
_@_other() {
  if declare -F _command_offset >/dev/null; then
    _command_offset "$1"
  elif (($1 >= COMP_CWORD)); then
    mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[COMP_CWORD]}")
  else
    _@_complete files "${COMP_WORDS[COMP_CWORD]}"
  fi
}
)sh";

std::string with_name(std::string text, const std::string& name) {
  for (size_t at = 0; (at = text.find('@', at)) != std::string::npos; at += name.size())
    if (text.compare(at, 2, "@]") != 0) text.replace(at, 1, name);
  return text;
}

std::string bash_action_of(const OptionOutline& option) {
  if (!option.choices.empty())
    return (option.takes_list ? "list " : "words ") + CLI::detail::join(option.choices, " ");
  const std::string value = option.is_positional ? option.names.front() : option.value;
  if (value == "FILE" || value == "PATH") return "files";
  return value == "DIR" ? "folders" : "any";
}

std::string row(const std::string& pattern, const std::string& answer) {
  return answer.empty() ? "" : "    '" + pattern + "') echo '" + answer + "' ;;\n";
}

void add_values(const CommandOutline& command, std::string& rows) {
  if (command.runs_a_command) rows += row(command.name, "command");
  for (const OptionOutline& option : command.options)
    for (const std::string& name : option.names) {
      if (option.is_positional) rows += row(command.name, bash_action_of(option));
      if (!option.is_positional && !option.value.empty())
        rows += row(command.name + " " + name, bash_action_of(option));
    }
  for (const CommandOutline& one : command.commands) add_values(one, rows);
}

void add_options(const CommandOutline& command, std::string& rows) {
  std::string words;
  for (const OptionOutline& option : command.options)
    for (const std::string& name : option.names)
      if (!option.is_positional) words += (words.empty() ? "" : " ") + name;
  rows += row(command.name, words);
  for (const CommandOutline& one : command.commands) add_options(one, rows);
}

void add_commands(const CommandOutline& command, std::string& rows) {
  std::string words;
  for (const CommandOutline& one : command.commands) words += (words.empty() ? "" : " ") + one.last_name();
  rows += row(command.name, words);
  for (const CommandOutline& one : command.commands) add_commands(one, rows);
}

std::string table(const std::string& name, const std::string& rows) {
  return "\n_@_" + name + "() {\n  case $1 in\n" + (rows.empty() ? "    *) ;;\n" : rows) + "  esac\n}\n";
}

}  // namespace

std::string bash_completion(const CommandOutline& program) {
  std::string values, options, commands;
  add_values(program, values);
  add_options(program, options);
  add_commands(program, commands);
  return with_name("# bash completion for @, made from its options by @ --help-as bash\n" +
                       table("value", values) + table("options", options) + table("commands", commands) +
                       (program.runs_a_command ? kOther : "\n_@_other() { :; }\n") + kWalk,
                   program.name);
}

}  // namespace tools
