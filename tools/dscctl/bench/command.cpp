#include "dscctl/bench/command.hpp"

#include <unistd.h>

#include <charconv>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "dscctl/bench/exit_codes.hpp"
#include "dscctl/bench/report.hpp"
#include "dscctl/bench/tune.hpp"

namespace dscctl::bench {
namespace {

constexpr const char* kSizes = "4,1KiB,16KiB,256KiB,1MiB,4MiB,25MiB,100MiB";
constexpr int kBudgetMs = 200;
constexpr int kTuneBudgetMs = 20;  // many short looks see more than few long ones
constexpr int kMostRanks = 64;

std::string operation_names() {
  std::string names;
  for (const Operation& operation : operations())
    names += (names.empty() ? "" : ", ") + std::string(operation.name);
  return names;
}

}  // namespace

struct Command::Options {
  CLI::App* bench = nullptr;
  std::string operation;
  std::string ranks = "2";
  std::string sizes;
  int budget_ms = 0;
  bool tune = false;
  std::vector<std::string> settings;
  bool verbose = false;
  bool as_json = false;
  CLI::Option* as_rank = nullptr;  // how it starts itself
  std::string cases;
};

Command::Command(CLI::App& app) : options_(std::make_unique<Options>()) {
  Options& o = *options_;
  o.bench = app.add_subcommand("bench", "How fast operations are here, which way data moves, and why");
  o.bench->footer(
      "Starts the ranks itself, as processes. Measures plain buffers and those of dsc_mem_alloc(); bytes "
      "are\n"
      "those of the largest buffer that any rank has. Other libraries are compared by ./dev bench.\n"
      "Exit code: 0 done, 1 a rank failed, 2 wrong usage or settings.");
  CLI::Option* op = o.bench->add_option("OP", o.operation, operation_names())->type_name("");
  o.bench->add_option("--ranks", o.ranks, "How many, such as 4 or 2,4 (default: 2)")->type_name("LIST");
  CLI::Option* sizes =
      o.bench->add_option("--sizes", o.sizes, "Such as 4,1KiB,25MiB (default: 4 B to 100 MiB)")
          ->type_name("LIST");
  o.bench
      ->add_option("--budget-ms", o.budget_ms,
                   "Milliseconds of timed calls per row, about (default: 200; --tune: 20)")
      ->check(CLI::Range(1, 600000))
      ->type_name("MS");
  o.bench->add_flag("-v,--verbose", o.verbose, "Also says which algorithm was chosen, and why");
  o.bench->add_flag("--json", o.as_json, "Prints JSON, with the algorithms");
  CLI::Option* tuning = o.bench->add_flag("--tune", o.tune,
                                          "Measures the settings of DSC_TUNING instead, and prints the "
                                          "fastest; a minute or more for each number of ranks. With -v: "
                                          "all times");
  tuning->excludes(op)->excludes(sizes);
  o.bench->add_option("--settings", o.settings, "Of DSC_TUNING, that --tune measures (default: all)")
      ->delimiter(',')
      ->needs(tuning)
      ->type_name("LIST");
  o.as_rank = o.bench->add_option("--as-rank", o.cases)->group("");
}

Command::~Command() = default;

bool Command::chosen() const { return options_->bench->parsed(); }

namespace {

std::vector<Case> cases_of(const Operation& operation, const std::string& sizes) {
  std::vector<Case> cases;
  if (!operation.moves) return {{&operation, false, 0}};
  for (const size_t bytes : parse_sizes(sizes))
    for (const bool shared : {false, true}) cases.push_back({&operation, shared, bytes});
  return cases;
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
  if (ranks.empty()) throw std::invalid_argument("--ranks: expected numbers such as 2,4, got nothing");
  return ranks;
}

void check_pairs(const Operation& operation, const std::vector<int>& ranks) {
  for (const int count : ranks)
    if (operation.in_pairs && count % 2 != 0)
      throw std::invalid_argument(std::string(operation.name) +
                                  " needs pairs: --ranks takes even numbers, got " + std::to_string(count));
}

// For one number of ranks. The report is for whoever wants JSON.
void run_one(const Job& job, const Operation& operation, bool as_json, Json& report) {
  std::vector<Row> rows;
  const auto facts = measure(job, [&](const Facts&, const Row& row) {
    rows.push_back(row);
    if (!as_json && rows.size() == 1) std::cout << headline(operation, job.ranks, job.explain);
    if (!as_json) std::cout << row_text(row, job.ranks, job.explain) << std::flush;
  });
  if (!as_json && job.explain) std::cout << reasons_text(*facts, rows);
  add_to_json(report, *facts, rows, job.ranks);
}

void measure_operation(const std::string& name, const std::vector<int>& numbers, const std::string& sizes,
                       Job job, bool as_json) {
  const Operation& operation = find_operation(name);
  check_pairs(operation, numbers);
  job.cases = cases_of(operation, sizes.empty() ? kSizes : sizes);
  Json report;
  for (const int ranks : numbers) {
    job.ranks = ranks;
    if (!as_json && !report.empty()) std::cout << "\n";
    run_one(job, operation, as_json, report);
  }
  if (as_json) std::cout << report.dump(1) << "\n";
}

void tell_progress(const std::string& what) {
  std::cerr << (isatty(STDERR_FILENO) == 1 ? "\r\033[K" : "") << "dscctl: " << what
            << (isatty(STDERR_FILENO) == 1 ? "" : "\n") << std::flush;
}

void measure_settings(const std::vector<int>& numbers, const std::vector<std::string>& keys, int budget_ms,
                      bool verbose, bool as_json) {
  Json report;
  std::vector<std::pair<int, Settings>> lines;
  for (const int ranks : numbers) {
    const std::string prefix = std::to_string(ranks) + " ranks: ";
    const Tuned tuned =
        tune(ranks, keys, budget_ms, [&](const std::string& what) { tell_progress(prefix + what); });
    if (isatty(STDERR_FILENO) == 1) std::cerr << "\r\033[K" << std::flush;
    if (!as_json) std::cout << tuned_text(tuned, ranks, verbose) << "\n" << std::flush;
    add_to_json(report, tuned, ranks);
    lines.emplace_back(ranks, tuned.settings);
  }
  std::cout << (as_json ? report.dump(1) + "\n" : table_text(lines));
}

}  // namespace

int Command::run() const {
  const Options& o = *options_;
  const int budget_ms = o.budget_ms > 0 ? o.budget_ms : o.tune ? kTuneBudgetMs : kBudgetMs;
  if (o.as_rank->count() > 0) return run_rank(o.cases, budget_ms, o.verbose);
  try {
    const std::vector<int> numbers = parse_ranks(o.ranks);
    if (o.tune)
      measure_settings(numbers, o.settings, budget_ms, o.verbose, o.as_json);
    else if (o.operation.empty())
      throw std::invalid_argument("expected --tune or an operation: " + operation_names());
    else
      measure_operation(o.operation, numbers, o.sizes, {2, {}, {}, budget_ms, o.verbose || o.as_json},
                        o.as_json);
    return std::cout.flush() ? kFine : kFailed;
  } catch (const std::invalid_argument& wrong) {
    std::cerr << "dscctl: " << wrong.what() << "\nTry 'dscctl bench --help'.\n";
    return kRefused;
  } catch (const std::runtime_error& error) {
    std::cerr << "dscctl: " << error.what() << "\n";
    return kFailed;
  }
}

}  // namespace dscctl::bench
