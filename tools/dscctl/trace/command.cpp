#include "dscctl/trace/command.hpp"

#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "dscctl/trace/dump.hpp"
#include "dscctl/trace/findings.hpp"
#include "dscctl/trace/operations.hpp"
#include "dscctl/trace/perfetto.hpp"
#include "dscctl/trace/reader.hpp"
#include "dscctl/trace/report.hpp"
#include "dscctl/trace/summary.hpp"
#include "dscctl/trace/text.hpp"
#include "dscctl/trace/timeline.hpp"

namespace dscctl::trace {
namespace {

namespace fs = std::filesystem;

constexpr int kFine = 0, kFindings = 1, kUsage = 2;

// What cannot be done as it was asked for.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

bool colors_are_welcome() {
  const char* terminal = std::getenv("TERM");
  const char* refused = std::getenv("NO_COLOR");
  if (refused != nullptr && *refused != '\0') return false;
  return isatty(STDOUT_FILENO) == 1 && terminal != nullptr && std::string(terminal) != "dumb";
}

Trace load(const fs::path& folder) {
  Trace trace = load_folder(folder);
  if (!trace.dumps.empty()) return trace;
  std::string text = folder.string() + ": no usable dsc_trace_rank_<rank>.json in this folder";
  for (const Problem& problem : trace.problems) text += "\n  " + problem.file + ": " + problem.text;
  throw Refused(text);
}

template <typename Write>
fs::path write_file(const fs::path& folder, const char* name, Write write) {
  const fs::path path = folder / name;
  std::ofstream file(path, std::ios::binary);
  write(file);
  file.close();
  if (!file) throw Refused(path.string() + ": cannot be written");
  return path;
}

}  // namespace

struct Command::Options {
  CLI::App* trace = nullptr;
  CLI::App* merge = nullptr;
  CLI::App* summary = nullptr;
  std::string folder;
  std::string out;
  double late_after_s = 1.0;
  bool all = false;
  bool as_json = false;
  std::optional<int> rank;
};

Command::Command(CLI::App& app) : options_(std::make_unique<Options>()) {
  Options& o = *options_;
  o.trace = app.add_subcommand("trace", "What the ranks of a job recorded before they dumped it");
  o.trace->require_subcommand(1);
  o.trace->footer(
      "DIR holds one dsc_trace_rank_<rank>.json per rank, as a job leaves them in DSC_TRACE_DIR.\n"
      "Exit code: 0 nothing found, 1 something is late, stuck, failed, unfit or missing, 2 wrong usage.");
  o.merge = o.trace->add_subcommand(
      "merge", "Says which rank is late at which operation; writes timeline.html and trace.perfetto.json");
  o.merge->add_option("DIR", o.folder, "Folder with the dumps")->required();
  o.merge->add_option("-o,--out", o.out, "Folder for the two files (default: DIR)");
  o.merge
      ->add_option("--late-after", o.late_after_s,
                   "A rank is late when others waited this many seconds for it")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  o.merge->add_flag("--all", o.all, "Prints all findings, not the first ten of each kind");
  o.merge->add_flag("--json", o.as_json, "Prints the report as JSON");
  o.summary = o.trace->add_subcommand(
      "summary", "Count, latency and bandwidth of one rank's operations by kind, size and group");
  o.summary->add_option("DIR", o.folder, "Folder with the dumps")->required();
  o.summary->add_option("--rank", o.rank, "Which rank (default: the lowest with a dump)");
  o.summary->add_flag("--json", o.as_json, "Prints JSON");
}

Command::~Command() = default;

bool Command::chosen() const { return options_->trace->parsed(); }

namespace {

int run_merge(const fs::path& folder, const fs::path& out, const Rules& rules, bool all, bool as_json) {
  const Trace trace = load(folder);
  const std::vector<Operation> operations = match(trace);
  const Report report = make_report(trace, operations, rules);
  fs::create_directories(out);
  const fs::path html =
      write_file(out, "timeline.html", [&](std::ostream& to) { write_timeline(to, report); });
  const fs::path perfetto = write_file(out, "trace.perfetto.json",
                                       [&](std::ostream& to) { write_perfetto(to, trace, operations); });
  if (as_json) {
    Json json = report_json(report);
    json["written"] = {html.string(), perfetto.string()};
    std::cout << text_of(json, 2) << "\n";
  } else {
    std::cout << report_text(report, all, colors_are_welcome()) << "\nWrote " << html.string()
              << " (open it in a browser)\n      " << perfetto.string() << " (open it in ui.perfetto.dev)\n";
  }
  return report.findings.empty() && trace.problems.empty() ? kFine : kFindings;
}

int run_summary(const fs::path& folder, std::optional<int> rank, bool as_json) {
  const Trace trace = load(folder);
  const int chosen = rank.value_or(trace.dumps.front().rank);
  if (trace.of_rank(chosen) == nullptr) {
    std::vector<int> known;
    for (const Dump& dump : trace.dumps) known.push_back(dump.rank);
    throw Refused("--rank " + std::to_string(chosen) + ": there is a usable dump of " + ranks_text(known) +
                  " only");
  }
  const std::vector<SummaryRow> rows = summarize(trace, match(trace), chosen);
  std::cout << (as_json ? text_of(summary_json(trace, rows, chosen), 2) + "\n"
                        : summary_text(trace, rows, chosen));
  return kFine;
}

}  // namespace

int Command::run() const {
  const Options& o = *options_;
  try {
    if (o.summary->parsed()) return run_summary(o.folder, o.rank, o.as_json);
    return run_merge(o.folder, o.out.empty() ? o.folder : o.out, {static_cast<int64_t>(o.late_after_s * 1e9)},
                     o.all, o.as_json);
  } catch (const Refused& refused) {
    std::cerr << "dscctl: " << refused.what() << "\n";
  } catch (const fs::filesystem_error& error) {
    std::cerr << "dscctl: " << error.path1().string() << ": " << error.code().message() << "\n";
  } catch (const std::exception& error) {
    std::cerr << "dscctl: " << o.folder << ": " << error.what() << "\n";
  }
  return kUsage;
}

}  // namespace dscctl::trace
