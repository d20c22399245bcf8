#include "dscctl/bench/command.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/output_file.hpp"
#include "common/reference/outline.hpp"
#include "dscctl/bench/exit_codes.hpp"
#include "dscctl/bench/network.hpp"
#include "dscctl/bench/report.hpp"
#include "dscctl/bench/sweep.hpp"
#include "dscctl/bench/tune.hpp"
#include "dscctl/network.hpp"

namespace dscctl::bench {
namespace {

constexpr const char* kSizes = "4,1KiB,16KiB,256KiB,1MiB,4MiB,25MiB,100MiB";
constexpr int kBudgetMs = 200;
constexpr int kTuneBudgetMs = 20;  // many short measurements find more than few long ones
constexpr int kAllBudgetMs = 20;
constexpr int kMostRanks = 64;

std::vector<std::string> operation_list() {
  std::vector<std::string> names;
  for (const Operation& operation : operations()) names.emplace_back(operation.name);
  names.emplace_back(kAll);
  return names;
}

std::string operation_names() { return CLI::detail::join(operation_list(), ", "); }

class BenchCommand final : public Command {
 public:
  explicit BenchCommand(CLI::App& app);
  int run() const override;

 private:
  std::string operation_;
  std::string ranks_ = "2";
  std::string sizes_;
  int budget_ms_ = 0;
  bool tune_ = false;
  std::vector<std::string> settings_;
  std::string network_;  // file for the measured costs of messages and all-reduces
  bool verbose_ = false;
  bool as_json_ = false;
  std::string svg_;
  CLI::Option* as_rank_ = nullptr;  // hidden option with which this program starts itself as a rank
  std::string cases_;
};

BenchCommand::BenchCommand(CLI::App& parent)
    : Command(*parent.add_subcommand(
          "bench", "Measures operations on this host, and shows which algorithm is used and why")) {
  app().footer(
      "Starts the ranks itself, as processes. Measures with plain buffers and with buffers of\n"
      "dsc_mem_alloc(). A size is that of the largest buffer of any rank. `all` prints the times of\n"
      "all operations as one table. ./dev bench compares other libraries.\n"
      "Exit code: 0 done, 1 a rank failed or a file cannot be written, 2 wrong usage or settings.");
  CLI::Option* op = app().add_option("OP", operation_, operation_names())->type_name("");
  tools::offer(op, operation_list());
  app().add_option("--ranks", ranks_, "Number of ranks, such as 4 or 2,4 (default: 2)")->type_name("LIST");
  CLI::Option* sizes =
      app()
          .add_option("--sizes", sizes_, "Sizes such as 4,1KiB,25MiB (default: 4 B to 100 MiB)")
          ->type_name("LIST");
  app()
      .add_option("--budget-ms", budget_ms_,
                  "Approximate time of the measured calls per row, in milliseconds (default: 200; all and "
                  "--tune: 20)")
      ->check(CLI::Range(1, 600000))
      ->type_name("MS");
  app().add_flag("-v,--verbose", verbose_,
                 "Also shows which algorithm was chosen and why, and how often ranks slept or yielded");
  app().add_flag("--json", as_json_, "Prints JSON, including everything that -v shows");
  CLI::Option* svg =
      app()
          .add_option("--svg", svg_, "Also draws the times, colored by bandwidth, as a heat map")
          ->check(tools::file_to_write())
          ->type_name("FILE");
  CLI::Option* tuning = app().add_flag("--tune", tune_,
                                       "Measures the settings of DSC_TUNING instead, and prints the "
                                       "fastest ones; takes a minute or more for each number of ranks. "
                                       "With -v: prints all times");
  tuning->excludes(op)->excludes(sizes)->excludes(svg);
  CLI::Option* network =
      app()
          .add_option("--network", network_,
                      "Measures send_recv and all_reduce, and writes latency and bandwidth to a file that "
                      "`dscctl schedule` and `dscctl plan` read")
          ->check(tools::file_to_write())
          ->type_name("FILE");
  network->excludes(op)->excludes(tuning)->excludes(svg);
  app()
      .add_option("--settings", settings_, "Settings of DSC_TUNING that --tune measures (default: all)")
      ->delimiter(',')
      ->needs(tuning)
      ->type_name("LIST");
  as_rank_ = app().add_option("--as-rank", cases_)->group("");
}

std::vector<int> parse_ranks(const std::string& text) {
  std::vector<int> ranks;
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    int count = 0;
    const auto [stop, error] = std::from_chars(item.data(), item.data() + item.size(), count);
    if (error != std::errc{} || stop != item.data() + item.size() || count < 1 || count > kMostRanks)
      throw std::invalid_argument("--ranks: expected numbers from 1 to " + std::to_string(kMostRanks) +
                                  " such as 2,4, got '" + item + "'");
    ranks.push_back(count);
  }
  if (ranks.empty()) throw std::invalid_argument("--ranks: expected numbers such as 2,4, got an empty list");
  return ranks;
}

// Prints progress. On a terminal, each step overwrites the line of the previous step, and no line is wider
// than the terminal. Elsewhere, each step is a separate line.
class ProgressLine {
 public:
  ~ProgressLine() {
    if (columns_ > 0) std::cerr << kClear << std::flush;
  }
  void tell(std::string what) const {
    if (columns_ > 0) what = kClear + what.substr(0, columns_ - 1);
    std::cerr << what << (columns_ > 0 ? "" : "\n") << std::flush;
  }

 private:
  static constexpr const char* kClear = "\r\033[K";

  static size_t find_columns() {
    winsize size{};
    if (isatty(STDERR_FILENO) != 1) return 0;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
  }

  const size_t columns_ = find_columns();  // 0: not a terminal
};

std::string time_left(double seconds) {
  const long whole = std::lround(seconds);
  if (whole < 1) return "almost done";
  return "about " +
         (whole < 100 ? std::to_string(whole) + " s" : std::to_string((whole + 30) / 60) + " min") + " left";
}

void measure_settings(const std::vector<int>& numbers, const std::vector<std::string>& keys, int budget_ms,
                      bool verbose, bool as_json) {
  Json report;
  std::vector<std::pair<int, Settings>> lines;
  for (const int ranks : numbers) {
    const Tuned tuned = [&] {
      const ProgressLine line;
      return tune(ranks, keys, budget_ms, [&](const std::string& what, double left_s) {
        line.tell("dscctl: " + std::to_string(ranks) + (ranks == 1 ? " rank, " : " ranks, ") +
                  time_left(left_s) + ": " + what);
      });
    }();
    if (!as_json) std::cout << tuned_text(tuned, ranks, verbose) << "\n" << std::flush;
    add_to_json(report, tuned, ranks);
    lines.emplace_back(ranks, tuned.settings);
  }
  std::cout << (as_json ? report.dump(1) + "\n" : table_text(lines));
}

// Measuring messages needs pairs of ranks, so the numbers of ranks must be even.
void write_measured_network(const std::vector<int>& numbers, const std::string& sizes, int budget_ms,
                            const std::string& path) {
  const std::vector<size_t> bytes = network_sizes(sizes);
  for (const int ranks : numbers)
    if (ranks % 2 != 0)
      throw std::invalid_argument(
          "--network measures messages between pairs of ranks: expected even numbers in --ranks, got " +
          std::to_string(ranks));
  tools::expect_writable(path);
  const NetworkFile network = measure_network(numbers, bytes, budget_ms);
  std::cout << network_text(network) << std::flush;
  write_network(network, path);
}

int BenchCommand::run() const {
  const int usual_ms = tune_ ? kTuneBudgetMs : operation_ == kAll ? kAllBudgetMs : kBudgetMs;
  const int budget_ms = budget_ms_ > 0 ? budget_ms_ : usual_ms;
  const std::string sizes = sizes_.empty() ? kSizes : sizes_;
  if (as_rank_->count() > 0) return run_rank(cases_, budget_ms, verbose_);
  try {
    const std::vector<int> numbers = parse_ranks(ranks_);
    if (tune_)
      measure_settings(numbers, settings_, budget_ms, verbose_, as_json_);
    else if (!network_.empty())
      write_measured_network(numbers, sizes, budget_ms, network_);
    else if (operation_.empty())
      throw std::invalid_argument("expected --tune, --network or an operation: " + operation_names());
    else
      measure({operation_, numbers, parse_sizes(sizes), budget_ms, verbose_, as_json_, svg_});
    return std::cout.flush() ? kFine : kFailed;
  } catch (const std::invalid_argument& wrong) {
    std::cerr << "dscctl: " << wrong.what() << "\nTry 'dscctl bench --help'.\n";
    return kRefused;
  } catch (const std::runtime_error& error) {
    std::cerr << "dscctl: " << error.what() << "\n";
    return kFailed;
  }
}

}  // namespace

std::unique_ptr<Command> make_command(CLI::App& app) { return std::make_unique<BenchCommand>(app); }

}  // namespace dscctl::bench
