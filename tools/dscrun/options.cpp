#include "dscrun/options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string_view>

#include "common/reference/reference.hpp"
#include "common/suggest.hpp"
#include "dsc/version.h"
#include "dscrun/hosts.hpp"
#include "dscrun/shell.hpp"
#include "dscrun/usage.hpp"

namespace dscrun {
namespace {

struct HelpFormat : CLI::Formatter {
  std::string make_usage(const CLI::App*, std::string) const override { return kUsageText; }
};

constexpr int kMaxNodes = 65536;
constexpr double kMaxSeconds = 1e8;
constexpr std::array<std::string_view, 12> kOwnVariables = {"RANK",
                                                            "WORLD_SIZE",
                                                            "LOCAL_RANK",
                                                            "LOCAL_WORLD_SIZE",
                                                            "GROUP_RANK",
                                                            "GROUP_WORLD_SIZE",
                                                            "MASTER_ADDR",
                                                            "MASTER_PORT",
                                                            "DSC_RESTART_COUNT",
                                                            "DSC_TOKEN_FD",
                                                            "DSC_TOKEN_FILE",
                                                            "DSC_TOKEN"};

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
    return std::string(name) + " cannot be set, because dscrun sets it itself";
  };
  return CLI::Validator(check, "");
}

Millis to_millis(double seconds) { return std::chrono::ceil<Millis>(std::chrono::duration<double>(seconds)); }

// Uses --port, then MASTER_PORT, then the default. The variable is checked like the option.
int choose_port(const CLI::App& app, int port) {
  const char* variable = std::getenv("MASTER_PORT");
  if (app.count("--port") != 0 || variable == nullptr || *variable == '\0') return port;
  std::string text = variable;
  const std::string problem = whole_number(1, 65535)(text);
  if (!problem.empty()) throw CLI::ValidationError("MASTER_PORT in the environment", problem);
  parse_number(std::string_view(text), port);
  return port;
}

// Accepts "4", or one number per host such as "4,4,2". mpirun's -np arrives here as -n with the value "p".
CLI::Validator rank_counts() {
  auto check = [](const std::string& text) -> std::string {
    if (text.starts_with('p')) return "unknown option '-n" + text + "'; did you mean '-n'?";
    for (std::string part : CLI::detail::split(text + ",", ',')) {
      std::string problem = whole_number(1, kMaxRanks)(part);
      if (!problem.empty()) return problem;
    }
    return "";
  };
  return CLI::Validator(check, "");
}

CLI::Validator node_rank() {
  auto check = [](const std::string& text) -> std::string {
    int value = 0;
    if (text == "auto" || (parse_number(text, value) && value >= 0)) return {};
    return "expected a whole number, 0 or more, or 'auto', got '" + text + "'";
  };
  return CLI::Validator(check, "");
}

CLI::Validator one_of(const std::vector<std::string>& words) {
  auto check = [words](const std::string& text) -> std::string {
    if (std::find(words.begin(), words.end(), text) != words.end()) return {};
    std::string all;
    for (const std::string& word : words) all += (all.empty() ? "" : ", ") + word;
    return "expected one of " + all + ", got '" + text + "'" + tools::did_you_mean(text, words);
  };
  return CLI::Validator(check, "", tools::validator_name(words));
}

// Accepts the name of a variable that is set, or NAME=VALUE.
CLI::Validator exported() {
  auto check = [](const std::string& text) -> std::string {
    const bool assigned = text.find('=') != std::string::npos;
    if (!assigned && (text.empty() || std::getenv(text.c_str()) == nullptr))
      return "expected NAME=VALUE or the name of a variable that is set, got '" + text + "'";
    std::string whole = assigned ? text : text + "=";
    return assignment()(whole);
  };
  return CLI::Validator(check, "");
}

CLI::Validator shell_words() {
  auto check = [](const std::string& text) -> std::string {
    try {
      return shell_split(text).empty() ? "expected a command, got ''" : "";
    } catch (const std::invalid_argument& error) {
      return std::string(error.what()) + " in '" + text + "'";
    }
  };
  return CLI::Validator(check, "");
}

// Settings in the form in which they are on the command line.
struct CommandLine {
  std::string ranks;
  std::vector<std::string> exports;
  double grace_s = 5;
  double lost_after_s = 60;
  double timeout_s = 0;
  bool no_prefix = false;
};

void add_where(CLI::App& app, Options& options, CommandLine& words) {
  const auto text = [&](const char* name, std::string& value, const char* type, const char* help) {
    return app.add_option(name, value, help)->type_name(type)->take_last();
  };
  text("-n", words.ranks, "N",
       "Number of ranks on each host (default: cores of this host); N,N,...: one number for each host")
      ->check(rank_counts());
  app.add_option("--nnodes", options.nodes, "Number of hosts; each runs its own dscrun")
      ->check(whole_number(1, kMaxNodes))
      ->type_name("N")
      ->take_last();
  text("--node-rank", options.node_rank, "R",
       "Number of this host, from 0; auto: read from the variables of mpirun or srun")
      ->check(node_rank());
  text("--node-list", options.node_list, "NAMES", "Names of all hosts in order, for --node-rank auto");
  text("--master-addr", options.master_addr, "ADDR", "A name or address of node 0 that all hosts can reach");
  app.add_option("--port,--master-port", options.port,
                 "Port on node 0, the MASTER_PORT of the ranks (default: MASTER_PORT if set, else 29500)")
      ->check(whole_number(1, 65535))
      ->type_name("PORT")
      ->take_last();
  text("--job-id", options.job_id, "ID",
       "Name of the job, the same on all hosts (default: random; with --nnodes: ADDR:PORT)");
  text("--hostfile", options.host_file, "FILE",
       "File with lines 'NAME slots=NUMBER', one for each host; dscrun starts the hosts by ssh");
  text("--include,-i", options.include, "HOSTS",
       "Uses only these hosts: NAME[:SLOT,SLOT...][@NAME...]; without --hostfile, slots of localhost");
  text("--exclude,-e", options.exclude, "HOSTS", "Uses all hosts except these");
  text("--start-with", options.start_with, "WAY", "Program that starts the hosts: ssh, mpirun or srun")
      ->check(one_of({"ssh", "mpirun", "srun"}));
  text("--ssh-command", options.ssh_command, "CMD",
       "Command that runs a command on a host, called as CMD HOST COMMAND (default: ssh)")
      ->check(shell_words());
  text("--remote-dscrun", options.remote_dscrun, "PATH",
       "Path of dscrun on the other hosts (default: the path of this dscrun)");
  app.add_option("--lost-after", words.lost_after_s,
                 "If a host receives nothing from this dscrun for SECONDS, it ends its ranks (default: 60)")
      ->check(seconds(false))
      ->type_name("SECONDS")
      ->take_last();
  app.add_option("--restart-count", options.restart_count,
                 "Used by dscrun only: number of restarts of the job so far")
      ->check(whole_number(0, 1'000'000))
      ->group("");
  app.add_flag("!--no-color", options.color,
               "Used by dscrun only: no colors, because the terminal is that of mpirun")
      ->group("");
  app.add_flag("--as-node", options.as_node,
               "Used by dscrun only: reads the job of this host from standard input")
      ->group("");
}

void add_how(CLI::App& app, Options& options, CommandLine& words) {
  app.add_option("--timeout", words.timeout_s, "Ends the run after SECONDS with exit code 124")
      ->check(seconds(false))
      ->type_name("SECONDS")
      ->take_last();
  app.add_option(
         "--grace,--grace-seconds", words.grace_s,
         "After a failure, the other ranks have SECONDS to end; then they get SIGTERM, and SIGKILL after "
         "another SECONDS (default: 5)")
      ->check(seconds(true))
      ->type_name("SECONDS")
      ->take_last();
  app.add_flag("--keep-going", options.keep_going, "Lets the other ranks continue when a rank fails");
  app.add_option("--allow-failures", options.allowed_failures,
                 "Lets up to N ranks fail: the other ranks continue and determine the exit code (default: 0)")
      ->check(whole_number(0, kMaxRanks))
      ->type_name("N")
      ->take_last();
  app.add_option("--restarts", options.restarts,
                 "After a failure, ends all ranks and restarts them, up to N times (default: 0)")
      ->check(whole_number(0, 1'000'000))
      ->type_name("N")
      ->take_last();
  app.add_flag("--no-prefix", words.no_prefix,
               "Prints lines without '[rank] ' at the start; with a single rank, this is the default");
  const auto add_variables = [&](const char* name, std::vector<std::string>& value, const char* type,
                                 const char* help) {
    return app.add_option(name, value, help)
        ->type_name(type)
        ->expected(1)
        ->take_all()
        ->allow_extra_args(false);
  };
  add_variables("--env", options.extra_env, "NAME=VALUE",
                "Sets an environment variable for every rank; may be repeated")
      ->check(assignment());
  add_variables("--export", words.exports, "NAME[=VALUE]",
                "Like --env, but NAME alone passes on the value from dscrun's own environment")
      ->check(exported());
  app.add_flag("--explain", options.explain, "Prints equivalent commands for mpirun, srun and torchrun");
  app.add_flag("--dry-run", options.dry_run, "Prints as JSON which rank would run where, and starts nothing");
}

// Returns a question with the option of dscrun that is similar to an unknown word; an empty text if no option
// is similar.
std::string suggest_option(const CLI::App& app, const std::string& word) {
  constexpr std::array<std::string_view, 9> kRankCounts = {
      "-N",       "--np",       "--nproc",    "--nprocs", "--nproc-per-node", "--procs-per-node",
      "--ntasks", "--num-gpus", "--num-procs"};
  std::string name = word.substr(0, word.find('='));
  std::replace(name.begin(), name.end(), '_', '-');
  if (std::find(kRankCounts.begin(), kRankCounts.end(), name) != kRankCounts.end())
    return "; did you mean '-n'?";
  return tools::did_you_mean(name, tools::known_words(app));
}

// All words after the first "--" belong to the command, unchanged. Without "--", the command starts at the
// first word that is not an option.
void parse_words(CLI::App& app, const std::vector<std::string>& words, Options& options) {
  const auto separator = std::find(words.begin(), words.end(), "--");
  std::vector<std::string> own(words.begin(), separator);
  std::reverse(own.begin(), own.end());  // CLI11 takes the words from the end of the list
  app.parse(own);

  options.command = app.remaining();
  if (!options.command.empty() && options.command.front().rfind('-', 0) == 0) {
    const std::string& word = options.command.front();
    throw CLI::ParseError("unknown option '" + word + "'" + suggest_option(app, word), kUsage);
  }
  if (separator != words.end()) {
    options.command.insert(options.command.end(), separator + (options.command.empty() ? 1 : 0), words.end());
  }
  if (!options.as_node && (options.command.empty() || options.command.front().empty())) {
    throw CLI::ParseError("no command given; expected dscrun -n 4 -- CMD [ARG ...]", kUsage);
  }
}

Options parse(CLI::App& app, const std::vector<std::string>& words) {
  Options options;
  CommandLine given;
  add_where(app, options, given);
  add_how(app, options, given);
  parse_words(app, words, options);
  if (!given.ranks.empty())
    for (const std::string& part : CLI::detail::split(given.ranks, ','))
      options.ranks.push_back(std::stoi(part));
  for (const std::string& text : given.exports) {
    const bool assigned = text.find('=') != std::string::npos;
    options.extra_env.push_back(assigned ? text : text + "=" + std::getenv(text.c_str()));
  }
  options.port = choose_port(app, options.port);
  options.grace = to_millis(given.grace_s);
  options.lost_after = to_millis(given.lost_after_s);
  if (given.timeout_s > 0) options.timeout = to_millis(given.timeout_s);
  options.prefix = !given.no_prefix;
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
  tools::add_reference(app);
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
