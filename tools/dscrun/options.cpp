#include "dscrun/options.hpp"

#include <sched.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string_view>

#include "dsc/version.h"

namespace dscrun {
namespace {

constexpr int kMaxRanks = 4096;
constexpr double kMaxSeconds = 1e8;
constexpr std::array<std::string_view, 6> kOwnVariables = {
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};

constexpr const char* kUsageText =
    "Usage: dscrun [-n N] [OPTIONS] [--] CMD [ARG ...]\n"
    "\n"
    "Runs CMD once per rank on this host and looks after all of them.\n"
    "\n"
    "Each rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and "
    "DSC_JOB_ID.\n"
    "Its lines come out with \"[rank] \" in front, standard output and standard error apart; a line of more "
    "than\n"
    "64 KiB comes out in several. Rank 0 reads dscrun's standard input, the others /dev/null.\n";

constexpr const char* kFooter =
    "Signals: HUP, INT, QUIT, TERM, USR1, USR2, TSTP and CONT are passed on to every rank. A second INT or "
    "TERM\n"
    "terminates the ranks, a third kills them. No process of the job outlives dscrun, not even if it is "
    "killed.\n"
    "\n"
    "Exit code: 0 if every rank exited with 0, but for --allow-failures; else that of the rank that failed "
    "first\n"
    "(128 + signal if it was killed); 124 after --timeout; 2 wrong usage, 125 dscrun itself failed, 126 CMD "
    "cannot be run, 127 CMD "
    "not found.";

struct HelpFormat : CLI::Formatter {
  std::string make_usage(const CLI::App*, std::string) const override { return kUsageText; }
};

template <typename Number>
bool parse_number(std::string_view text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

CLI::Validator whole_number(int min, int max) {
  auto check = [min, max](const std::string& text) -> std::string {
    int value = 0;
    if (parse_number(text, value) && value >= min && value <= max) return {};
    return "expected a whole number from " + std::to_string(min) + " to " + std::to_string(max) + ", got '" +
           text + "'";
  };
  return CLI::Validator(check, "");
}

CLI::Validator seconds(bool zero_allowed) {
  auto check = [zero_allowed](const std::string& text) -> std::string {
    double value = 0;
    const bool is_number = parse_number(text, value);
    if (is_number && value <= kMaxSeconds && (value > 0 || (zero_allowed && value == 0))) return {};
    return std::string("expected seconds, ") + (zero_allowed ? "0 or more" : "more than 0") + ", got '" +
           text + "'";
  };
  return CLI::Validator(check, "");
}

CLI::Validator assignment() {
  auto check = [](const std::string& text) -> std::string {
    const size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos) return "expected NAME=VALUE, got '" + text + "'";
    const auto name = std::string_view(text).substr(0, equals);
    if (std::find(kOwnVariables.begin(), kOwnVariables.end(), name) == kOwnVariables.end()) return {};
    return std::string(name) + " is set by dscrun itself";
  };
  return CLI::Validator(check, "");
}

Millis to_millis(double seconds) { return std::chrono::ceil<Millis>(std::chrono::duration<double>(seconds)); }

int core_count() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return 1;
  return std::clamp(CPU_COUNT(&cores), 1, kMaxRanks);
}

// --port, then MASTER_PORT, then the default; the variable is checked like the option.
int choose_port(const CLI::App& app, int port) {
  const char* variable = std::getenv("MASTER_PORT");
  if (app.count("--port") != 0 || variable == nullptr || *variable == '\0') return port;
  std::string text = variable;
  const std::string problem = whole_number(1, 65535)(text);
  if (!problem.empty()) throw CLI::ValidationError("MASTER_PORT in the environment", problem);
  parse_number(std::string_view(text), port);
  return port;
}

// Everything behind the first "--" belongs to the command, untouched; without one it starts at the first
// word.
Options parse(CLI::App& app, const std::vector<std::string>& words) {
  Options options;
  options.ranks = core_count();
  double grace_s = 5;
  double timeout_s = 0;
  bool no_prefix = false;
  app.add_option("-n", options.ranks, "Number of ranks (default: cores of this host)")
      ->check(whole_number(1, kMaxRanks))
      ->type_name("N")
      ->take_last();
  app.add_option("--timeout", timeout_s, "Ends the run after SECONDS with exit code 124")
      ->check(seconds(false))
      ->type_name("SECONDS")
      ->take_last();
  app.add_option("--grace", grace_s,
                 "Time for the others after a failure, and again from SIGTERM to SIGKILL (5)")
      ->check(seconds(true))
      ->type_name("SECONDS")
      ->take_last();
  app.add_flag("--keep-going", options.keep_going, "Lets the others run on when a rank fails");
  app.add_option("--allow-failures", options.allowed_failures,
                 "Up to N ranks may fail: the others run on, and decide the exit code (0)")
      ->check(whole_number(0, kMaxRanks))
      ->type_name("N")
      ->take_last();
  app.add_flag("--no-prefix", no_prefix,
               "Puts nothing in front of the lines; a single rank's bytes pass unchanged");
  app.add_option("--port", options.port, "MASTER_PORT of the ranks (default: MASTER_PORT if set, else 29500)")
      ->check(whole_number(1, 65535))
      ->type_name("PORT")
      ->take_last();
  app.add_option("--env", options.extra_env, "Sets a variable for every rank; may be repeated")
      ->check(assignment())
      ->type_name("NAME=VALUE")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);

  const auto separator = std::find(words.begin(), words.end(), "--");
  std::vector<std::string> own(words.begin(), separator);
  std::reverse(own.begin(), own.end());  // CLI11 takes them from the back
  app.parse(own);

  options.command = app.remaining();
  if (!options.command.empty() && options.command.front().rfind('-', 0) == 0) {
    throw CLI::ParseError("unknown option '" + options.command.front() + "'", kUsage);
  }
  if (separator != words.end()) {
    options.command.insert(options.command.end(), separator + (options.command.empty() ? 1 : 0), words.end());
  }
  if (options.command.empty() || options.command.front().empty()) {
    throw CLI::ParseError("no command given; expected dscrun -n 4 -- CMD [ARG ...]", kUsage);
  }
  if (options.allowed_failures >= options.ranks)
    throw CLI::ValidationError("--allow-failures", "expected fewer than the " +
                                                       std::to_string(options.ranks) + " ranks, got '" +
                                                       std::to_string(options.allowed_failures) + "'");
  options.port = choose_port(app, options.port);
  options.grace = to_millis(grace_s);
  if (timeout_s > 0) options.timeout = to_millis(timeout_s);
  options.prefix = !no_prefix;
  return options;
}

}  // namespace

std::variant<Options, int> parse_options(int argc, char** argv) {
  CLI::App app("", "dscrun");
  app.formatter(std::make_shared<HelpFormat>());
  app.footer(kFooter);
  app.prefix_command();
  app.set_version_flag("--version", "dscrun " + std::to_string(DSC_VERSION_MAJOR) + "." +
                                        std::to_string(DSC_VERSION_MINOR) + "." +
                                        std::to_string(DSC_VERSION_PATCH));
  try {
    return parse(app, std::vector<std::string>(argv + 1, argv + argc));
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::cerr << "dscrun: " << error.what() << "\nTry 'dscrun --help'.\n";
    return kUsage;
  }
}

}  // namespace dscrun
