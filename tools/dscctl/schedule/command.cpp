#include "dscctl/schedule/command.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "dscctl/schedule/handle.hpp"
#include "dscctl/schedule/html.hpp"

namespace dscctl::schedule {
namespace {

constexpr int kFine = 0, kRefused = 1;
constexpr int32_t kWholePipeline = -1;

const std::map<std::string, int32_t> kFormats{{"pytorch", DSC_PIPE_FORMAT_PYTORCH},
                                              {"pytorch_comms", DSC_PIPE_FORMAT_PYTORCH_COMMS},
                                              {"deepspeed", DSC_PIPE_FORMAT_DEEPSPEED},
                                              {"megatron", DSC_PIPE_FORMAT_MEGATRON},
                                              {"json", DSC_PIPE_FORMAT_JSON}};

bool colors_are_welcome() {
  const char* terminal = std::getenv("TERM");
  const char* refused = std::getenv("NO_COLOR");
  if (refused != nullptr && *refused != '\0') return false;
  return isatty(STDOUT_FILENO) == 1 && terminal != nullptr && std::string(terminal) != "dumb";
}

std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file && !file.eof()) throw std::runtime_error(path + ": cannot be read");
  if (!file.is_open()) throw std::runtime_error(path + ": cannot be opened");
  return text;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw std::runtime_error(path + ": cannot be written");
  std::cerr << "wrote " << path << "\n";
}

class ScheduleCommand final : public Command {
 public:
  explicit ScheduleCommand(CLI::App& app);
  int run() const override;

 private:
  void add_what();
  void add_costs();
  void add_output();
  dsc_pipe_schedule_options_t options(const std::string& kind) const;
  std::vector<Handle> schedules(const dsc_pipe_costs_t& costs) const;
  Handle best(const dsc_pipe_costs_t& costs) const;
  Handle read_file() const;
  void show(const Handle& schedule, const dsc_pipe_costs_t& costs) const;
  void print(const Handle& schedule, const dsc_pipe_costs_t& costs) const;

  std::vector<std::string> kinds_{"1f1b"};
  int32_t stages_ = 4;
  int32_t micro_batches_ = 8;
  int32_t chunks_ = 0;
  int32_t group_ = 0;
  bool forward_only_ = false, merge_ = false, at_once_ = false;
  int64_t activations_ = 0;
  std::string from_;
  std::string format_ = "pytorch";
  mutable Costs costs_;
  std::string svg_, perfetto_, html_, write_;
  bool check_ = false;
};

ScheduleCommand::ScheduleCommand(CLI::App& parent)
    : Command(*parent.add_subcommand(
          "schedule", "Prints, draws, prices, converts and checks pipeline schedules; runs nothing")) {
  app().footer(
      "F is a forward pass, B a backward pass, I and W its two halves, in small letters on the second of "
      "two\n"
      "chunks; the number is the micro-batch, and dots are idle.\n"
      "Such as: dscctl schedule --kind zb_v --stages 4 --micro-batches 8\n"
      "         dscctl schedule --kind 1f1b --forward 1,1,2,2 --comm 0.1 --svg 1f1b.svg\n"
      "         dscctl schedule --kind 1f1b --kind zb_h1 --kind zb_v --html compare.html\n"
      "         dscctl schedule --from mine.csv --check\n"
      "Exit code: 0 fine, 1 no such schedule, or one that cannot be run, 2 wrong usage.");
  add_what();
  add_costs();
  add_output();
}

void ScheduleCommand::add_what() {
  app()
      .add_option("-k,--kind", kinds_,
                  "Name of the schedule, see docs/schedules.md; auto: the best for these costs; may be "
                  "repeated (default: 1f1b)")
      ->type_name("NAME");
  app().add_option("-s,--stages", stages_, "Devices of the pipeline (default: 4)")->type_name("N");
  app().add_option("-m,--micro-batches", micro_batches_, "Of a batch (default: 8)")->type_name("N");
  app()
      .add_option("-c,--chunks", chunks_, "Parts of the model per stage (default: the schedule's own)")
      ->type_name("N");
  app().add_option("--group", group_, "interleaved_1f1b: micro-batches per chunk and turn")->type_name("N");
  app()
      .add_option("--activations", activations_,
                  "auto: most micro-batches times chunks that a stage may hold (default: any)")
      ->type_name("N");
  app().add_flag("--forward-only", forward_only_, "Without backward passes");
  app().add_flag("--merge", merge_, "Makes halves of a backward pass that follow each other one");
  app().add_flag("--at-once", at_once_, "Sends right after what makes a message, as PyTorch does");
  auto* from = app().add_option("--from", from_, "Reads the schedule from a file instead")->type_name("FILE");
  for (const char* name : {"--kind", "--stages", "--micro-batches", "--chunks", "--group", "--forward-only"})
    from->excludes(name);
  app()
      .add_option("--format", format_,
                  "Of that file: pytorch, pytorch_comms, deepspeed, megatron or json (default: pytorch)")
      ->check(CLI::IsMember(kFormats))
      ->needs(from)
      ->type_name("FORMAT");
}

void ScheduleCommand::add_costs() {
  const auto list = [&](const char* option, std::vector<double>& values, const char* help) {
    app().add_option(option, values, help)->delimiter(',')->type_name("TIME[,TIME...]");
  };
  list("--forward", costs_.forward,
       "Time of a forward pass, for all parts of the model or for each (default: 1)");
  list("--backward-input", costs_.backward_input, "Time of the first half of a backward pass (default: 1)");
  list("--backward-weight", costs_.backward_weight, "Time of the second half (default: 1)");
  app()
      .add_option("--comm", costs_.latency, "Time of a message between stages (default: 0)")
      ->type_name("TIME");
  app()
      .add_option("--overlap", costs_.overlap,
                  "What two passes at once take, as a part of their sum (default: 1)")
      ->type_name("PART");
}

void ScheduleCommand::add_output() {
  app().add_option("--svg", svg_, "Writes a drawing")->type_name("FILE");
  app().add_option("--perfetto", perfetto_, "Writes a trace for ui.perfetto.dev")->type_name("FILE");
  app()
      .add_option("--html", html_,
                  "Writes a page for a browser: all --kind side by side, with sliders for costs")
      ->type_name("FILE");
  app()
      .add_option(
          "--write", write_,
          "Prints the schedule in a format instead: pytorch, pytorch_comms, deepspeed, megatron, json")
      ->check(CLI::IsMember(kFormats))
      ->type_name("FORMAT");
  app().add_flag("--check", check_, "Says only whether it can be run");
}

dsc_pipe_schedule_options_t ScheduleCommand::options(const std::string& kind) const {
  dsc_pipe_schedule_options_t options;
  expect_ok(dsc_pipe_schedule_options_init(&options, sizeof options));
  options.stage = kWholePipeline;
  options.merge_backward = merge_ ? 1 : 0;
  options.messages = at_once_ ? DSC_PIPE_AT_ONCE : DSC_PIPE_WHEN_NEEDED;
  if (!from_.empty()) return options;
  options.name = kind.c_str();
  options.stages = stages_;
  options.micro_batches = micro_batches_;
  options.chunks = chunks_;
  options.micro_batch_group = group_;
  options.forward_only = forward_only_ ? 1 : 0;
  return options;
}

// What was found is told beside it, so that the schedule itself can be piped on.
Handle ScheduleCommand::best(const dsc_pipe_costs_t& costs) const {
  dsc_pipe_search_t search{};
  search.struct_size = sizeof search;
  search.activations = activations_;
  Handle found = find(options("auto"), costs, search);
  std::cerr << "found: " << search.origin << ", makespan " << search.makespan
            << (search.is_optimal == 1 ? ", which no order beats"
                                       : ", and none is below " + std::to_string(search.bound));
  if (search.best_named[0] != '\0')
    std::cerr << "; " << search.best_named << " takes " << search.best_named_makespan;
  std::cerr << "\n";
  return found;
}

Handle ScheduleCommand::read_file() const {
  try {
    return read(file_text(from_), kFormats.at(format_), options(""));
  } catch (const std::runtime_error& error) {
    const std::string text = error.what();
    throw std::runtime_error(text.starts_with(from_) ? text : from_ + ": " + text);
  }
}

std::vector<Handle> ScheduleCommand::schedules(const dsc_pipe_costs_t& costs) const {
  std::vector<Handle> made;
  if (!from_.empty()) {
    made.push_back(read_file());
    return made;
  }
  const bool needs_one = !svg_.empty() || !perfetto_.empty() || !write_.empty();
  if (needs_one && kinds_.size() > 1)
    throw std::runtime_error("--kind is given " + std::to_string(kinds_.size()) +
                             " times, expected one for --svg, --perfetto and --write; --html takes several");
  for (const std::string& kind : kinds_) made.push_back(kind == "auto" ? best(costs) : make(options(kind)));
  return made;
}

void ScheduleCommand::print(const Handle& schedule, const dsc_pipe_costs_t& costs) const {
  const std::string text =
      draw(schedule, costs, colors_are_welcome() ? DSC_PIPE_PICTURE_COLOR : DSC_PIPE_PICTURE_TEXT);
  std::cout << text;
  winsize size{};
  const std::string plain = draw(schedule, costs, DSC_PIPE_PICTURE_TEXT);
  const size_t first = plain.find('\n') + 1;
  const bool is_too_wide = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 &&
                           plain.find('\n', first) - first > size.ws_col;
  if (is_too_wide) std::cerr << "the lines are longer than this terminal is wide; --svg FILE draws them\n";
}

struct Priced {
  dsc_pipe_report_t report;
  std::vector<dsc_pipe_stage_report_t> stages;
};

Priced simulate(const Handle& schedule, const dsc_pipe_costs_t& costs) {
  dsc_pipe_schedule_info_t info{};
  info.struct_size = sizeof info;
  expect_ok(dsc_pipe_schedule_describe(schedule.get(), &info));
  Priced priced{{}, std::vector<dsc_pipe_stage_report_t>(static_cast<size_t>(info.stages))};
  priced.report.struct_size = sizeof priced.report;
  priced.report.stages = priced.stages.data();
  expect_ok(dsc_pipe_simulate(schedule.get(), &costs, &priced.report));
  return priced;
}

bool is_too_large(const Handle& schedule, const dsc_pipe_costs_t& costs) {
  size_t bytes = 0;
  return dsc_pipe_draw(schedule.get(), &costs, DSC_PIPE_PICTURE_TEXT, nullptr, 0, &bytes) == DSC_ERR_OVERFLOW;
}

void print_numbers(const dsc_pipe_report_t& report, const std::vector<dsc_pipe_stage_report_t>& stages) {
  double busy = 0;
  int64_t peak = 0;
  for (const auto& stage : stages) {
    busy += stage.busy;
    peak = std::max(peak, stage.peak_activations);
  }
  const double all = report.makespan * static_cast<double>(stages.size());
  std::cout << "makespan " << report.makespan << ", idle " << (all > 0 ? 100 * (1 - busy / all) : 0)
            << " %, activations held at most " << peak << "; too large for a picture\n";
}

void ScheduleCommand::show(const Handle& schedule, const dsc_pipe_costs_t& costs) const {
  const auto [report, stages] = simulate(schedule, costs);
  if (check_)
    std::cout << "it can be run\n";
  else if (!write_.empty())
    std::cout << write(schedule, kFormats.at(write_));
  else if (svg_.empty() && perfetto_.empty() && html_.empty()) {
    if (is_too_large(schedule, costs))
      print_numbers(report, stages);
    else
      print(schedule, costs);
  }
  if (!svg_.empty()) write_file(svg_, draw(schedule, costs, DSC_PIPE_PICTURE_SVG));
  if (!perfetto_.empty()) write_file(perfetto_, draw(schedule, costs, DSC_PIPE_PICTURE_PERFETTO));
}

int ScheduleCommand::run() const {
  try {
    const dsc_pipe_costs_t costs = costs_.as_c();
    const std::vector<Handle> made = schedules(costs);
    for (const Handle& schedule : made) show(schedule, costs);
    if (!html_.empty()) write_file(html_, html_of(made, costs_));
  } catch (const std::exception& error) {
    std::cerr << "dscctl: " << error.what() << "\n";
    return kRefused;
  }
  std::cout << std::flush;
  return std::cout ? kFine : kRefused;
}

}  // namespace

std::unique_ptr<Command> make_command(CLI::App& app) { return std::make_unique<ScheduleCommand>(app); }

}  // namespace dscctl::schedule
