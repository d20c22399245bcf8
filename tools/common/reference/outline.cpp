#include "common/reference/outline.hpp"

#include <algorithm>
#include <sstream>

namespace tools {
namespace {

// Returns the words of a validator whose name or description has the form "{a,b}". The name is for words that
// the help should not show.
std::vector<std::string> choices_of(CLI::Option& option) try {
  for (int i = 0;; ++i) {
    const CLI::Validator& validator = *option.get_validator(i);
    for (const std::string& text : {validator.get_name(), validator.get_description()})
      if (text.size() > 2 && text.front() == '{' && text.back() == '}')
        return CLI::detail::split(text.substr(1, text.size() - 2), ',');
  }
} catch (const CLI::OptionNotFound&) {  // there are no more validators
  return {};
}

// Returns the name of the type without the parts that validators add, as in "N:INT in [1 - 9]".
std::string value_name(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return option.get_type_size_max() == 0 ? std::string() : type.substr(0, type.find(':'));
}

OptionOutline outline_of(CLI::Option& option) {
  OptionOutline made;
  made.is_positional = option.get_positional();
  if (made.is_positional)
    made.names = {option.get_name(true, false)};
  else
    for (const std::string& name : option.get_snames()) made.names.push_back("-" + name);
  if (!made.is_positional)
    for (const std::string& name : option.get_lnames()) made.names.push_back("--" + name);
  made.value = value_name(option);
  made.help = option.get_description();
  made.choices = choices_of(option);
  made.is_required = option.get_required();
  made.takes_list = option.get_delimiter() != '\0';
  made.may_repeat = option.get_items_expected_max() > 1 ||
                    option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
  return made;
}

// Takes the lines of "Usage: ..." up to an empty line as usage, and the rest as details.
void take_usage(CommandOutline& made, const std::string& text) {
  constexpr size_t kLabel = sizeof "Usage: " - 1;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line) && line.size() > kLabel;)
    made.usage.push_back(line.substr(kLabel));
  std::getline(lines, made.details, '\0');
}

// If a command has no description, the first paragraph after its usage is its summary.
void take_summary(CommandOutline& made, std::string description) {
  made.summary = std::move(description);
  if (made.summary.empty()) {
    const size_t end = made.details.find("\n\n");
    made.summary = made.details.substr(0, end);
    made.details = end == std::string::npos ? std::string() : made.details.substr(end + 2);
  }
  while (made.summary.ends_with('\n') || made.summary.ends_with('.')) made.summary.pop_back();
}

}  // namespace

CommandOutline outline(const CLI::App& app, const std::string& parent) {
  CommandOutline made;
  made.name = parent + (parent.empty() ? "" : " ") + app.get_name();
  const auto formatter = std::dynamic_pointer_cast<CLI::Formatter>(app.get_formatter());
  take_usage(made, formatter->make_usage(&app, made.name));
  take_summary(made, app.get_description());
  made.footer = app.get_footer();
  made.runs_a_command = app.get_prefix_command();
  for (const CLI::Option* option : app.get_options())  // CLI11 returns validators only of a mutable option
    if (!option->get_group().empty()) made.options.push_back(outline_of(const_cast<CLI::Option&>(*option)));
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    made.commands.push_back(outline(*command, made.name));
  return made;
}

std::string validator_name(const std::vector<std::string>& words) {
  return "{" + CLI::detail::join(words, ",") + "}";
}

void offer(CLI::Option* option, const std::vector<std::string>& words) {
  const auto anything = [](std::string&) { return std::string(); };
  option->check(CLI::Validator(anything, "", validator_name(words)));
}

}  // namespace tools
