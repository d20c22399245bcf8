#include "common/suggest.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace tools {
namespace {

// Returns how many letters must be inserted, deleted or replaced to change one word into the other.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t exchanged = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({exchanged, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::string reason(const CLI::App& app, const CLI::App& command, const CLI::ParseError& error) {
  const std::vector<std::string> left = app.remaining(true);
  if (!left.empty())
    return "unknown command or option '" + left.front() + "'" +
           did_you_mean(left.front(), known_words(command));
  std::string commands;
  for (const CLI::App* one : command.get_subcommands([](const CLI::App*) { return true; }))
    commands += (commands.empty() ? "" : ", ") + one->get_name();
  return commands.empty() ? error.what() : "expected a subcommand: " + commands;
}

}  // namespace

std::vector<std::string> known_words(const CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    words.push_back(command->get_name());
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
  return words;
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& known) {
  const auto nearest = std::min_element(known.begin(), known.end(), [&](const auto& a, const auto& b) {
    return distance(word, a) < distance(word, b);
  });
  if (nearest == known.end() || distance(word, *nearest) * 2 >= word.size()) return "";
  return "; did you mean '" + *nearest + "'?";
}

std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;
  std::string name = app.get_name();
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    name += " " + command->get_name();
  }
  return reason(app, *command, error) + "\nTry '" + name + " --help'.";
}

}  // namespace tools
