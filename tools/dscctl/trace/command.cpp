#include "dscctl/trace/command.hpp"

#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "dscctl/trace/dump.hpp"
#include "dscctl/trace/findings.hpp"
#include "dscctl/trace/iteration.hpp"
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

// An error in what the user asked for.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

bool colors_are_welcome() {
  const char* terminal = std::getenv("TERM");
  const char* refused = std::getenv("NO_COLOR");
  if (refused != nullptr && *refused != '\0') return false;
  return isatty(STDOUT_FILENO) == 1 && terminal != nullptr && std::string(terminal) != "dumb";
}

using Sources = std::vector<fs::path>;

Trace load(const Sources& sources) {
  Trace trace = load_dumps(sources);
  if (!trace.dumps.empty()) return trace;
  std::string text = sources.front().string() + ": ";
  text += sources.size() > 1                  ? "no usable dump in this path or in the other given paths"
          : fs::is_directory(sources.front()) ? "no usable dsc_trace_rank_<rank>.json in this directory"
                                              : "no usable dump";
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

// A validator for numbers in a range, with a clear message.
CLI::Validator number(const char* what, double least, double most) {
  return CLI::Validator(
      [=](const std::string& text) {
        double value = 0;
        const bool fits = CLI::detail::lexical_cast(text, value) && value >= least && value <= most;
        return fits ? std::string() : std::string("expected ") + what + ", got '" + text + "'";
      },
      "");
}

constexpr double kMostSeconds = 1e9;
constexpr const char* kDumps = "Directories with dumps, or dump files";

class TraceCommand final : public Command {
 public:
  explicit TraceCommand(CLI::App& app);
  int run() const override;

 private:
  CLI::App* merge_ = nullptr;
  CLI::App* summary_ = nullptr;
  CLI::App* iteration_ = nullptr;
  std::vector<std::string> sources_;
  std::string out_;
  double late_after_s_ = 1.0;
  bool all_ = false;
  bool as_json_ = false;
  std::optional<int> rank_;
};

TraceCommand::TraceCommand(CLI::App& parent)
    : Command(*parent.add_subcommand(
          "trace",
          "Reads the dumps of all ranks, which contain their latest operations, and finds problems")) {
  app().require_subcommand(1);
  app().footer(
      "PATH is a directory with one dsc_trace_rank_<rank>.json per rank, as a job writes them to "
      "DSC_TRACE_DIR,\nor a dump file of any name.\nExample: dscctl trace merge traces && xdg-open "
      "traces/timeline.html\n         dscctl trace merge node0/trace.0.json node1/trace.1.json -o merged\n   "
      "      dscctl trace summary traces --rank 3\n         dscctl trace iteration traces && xdg-open "
      "traces/iteration.svg\nExit code: 0 no problem found, 1 something is late, slow, stuck, failed, "
      "mismatched or missing, 2 wrong usage.");
  merge_ = app().add_subcommand(
      "merge", "Finds which rank is late at which operation; writes timeline.html and trace.perfetto.json");
  merge_->add_option("PATH", sources_, kDumps)->required()->type_name("");
  merge_
      ->add_option("-o,--out", out_, "Directory for the two files (default: the directory of the first dump)")
      ->type_name("DIR");
  merge_
      ->add_option("--late-after", late_after_s_,
                   "A rank is late if other ranks waited this long for it (default: 1)")
      ->check(number("seconds from 0 to 1000000000, such as 0.5", 0, kMostSeconds))
      ->type_name("SECONDS");
  merge_->add_flag("--all", all_, "Prints all findings, not only the first ten of each kind");
  merge_->add_flag("--json", as_json_, "Prints the report as JSON");
  summary_ = app().add_subcommand(
      "summary", "Prints count, latency and bandwidth of one rank's operations by kind, size and group");
  summary_->add_option("PATH", sources_, kDumps)->required()->type_name("");
  summary_->add_option("--rank", rank_, "Rank to show (default: the lowest rank with a dump)")
      ->check(number("a rank number, 0 or more", 0, INT_MAX))
      ->type_name("RANK");
  summary_->add_flag("--json", as_json_, "Prints JSON");
  iteration_ = app().add_subcommand(
      "iteration", "Draws the latest iteration of gradient reducers on all ranks; writes iteration.svg");
  iteration_->add_option("PATH", sources_, kDumps)->required()->type_name("");
  iteration_
      ->add_option("-o,--out", out_, "Directory for the file (default: the directory of the first dump)")
      ->type_name("DIR");
}

fs::path folder_of(const fs::path& source) {
  if (fs::is_directory(source)) return source;
  return source.has_parent_path() ? source.parent_path() : ".";
}

int run_merge(const Sources& sources, const fs::path& out, const Rules& rules, bool all, bool as_json) {
  const Trace trace = load(sources);
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

int run_summary(const Sources& sources, std::optional<int> rank, bool as_json) {
  const Trace trace = load(sources);
  const int chosen = rank.value_or(trace.dumps.front().rank);
  if (trace.of_rank(chosen) == nullptr) {
    std::vector<int> known;
    for (const Dump& dump : trace.dumps) known.push_back(dump.rank);
    throw Refused("--rank " + std::to_string(chosen) +
                  ": expected a rank with a usable dump: " + ranks_text(known));
  }
  const std::vector<SummaryRow> rows = summarize(trace, match(trace), chosen);
  std::cout << (as_json ? text_of(summary_json(trace, rows, chosen), 2) + "\n"
                        : summary_text(trace, rows, chosen));
  return kFine;
}

int run_iteration(const Sources& sources, const fs::path& out) {
  const std::string picture = draw_iterations(load(sources));
  if (picture.empty())
    throw Refused(sources.front().string() +
                  ": the dumps contain no iteration of a gradient reducer. A dump contains only iterations "
                  "of reducers that still existed when it was written");
  fs::create_directories(out);
  const fs::path svg = write_file(out, "iteration.svg", [&](std::ostream& to) { to << picture; });
  std::cout << "Wrote " << svg.string() << " (open it in a browser)\n";
  return kFine;
}

int TraceCommand::run() const {
  const Sources sources(sources_.begin(), sources_.end());
  try {
    if (summary_->parsed()) return run_summary(sources, rank_, as_json_);
    const fs::path out = out_.empty() ? folder_of(sources.front()) : fs::path(out_);
    if (iteration_->parsed()) return run_iteration(sources, out);
    return run_merge(sources, out, {static_cast<int64_t>(late_after_s_ * 1e9)}, all_, as_json_);
  } catch (const Refused& refused) {
    std::cerr << "dscctl: " << refused.what() << "\n";
  } catch (const fs::filesystem_error& error) {
    std::cerr << "dscctl: " << error.path1().string() << ": " << error.code().message() << "\n";
  } catch (const std::exception& error) {
    std::cerr << "dscctl: " << sources_.front() << ": " << error.what() << "\n";
  }
  return kUsage;
}

}  // namespace

std::unique_ptr<Command> make_command(CLI::App& app) { return std::make_unique<TraceCommand>(app); }

}  // namespace dscctl::trace
