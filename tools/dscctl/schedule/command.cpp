#include "dscctl/schedule/command.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "common/output_file.hpp"
#include "common/reference/outline.hpp"
#include "common/text_file.hpp"
#include "common/units.hpp"
#include "dscctl/plan/model.hpp"
#include "dscctl/schedule/cost_options.hpp"
#include "dscctl/schedule/handle.hpp"
#include "dscctl/schedule/html.hpp"
#include "dscctl/schedule/pictures.hpp"

namespace dscctl::schedule {
namespace {

constexpr const char* kAuto = "auto";
constexpr int kFine = 0, kRefused = 1, kWrongUsage = 2;

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
  try {
    return tools::text_of_file(path);
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(error.what());
  }
}

// Guesses the format from words that only one format contains.
int32_t guess_format(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return DSC_PIPE_FORMAT_PYTORCH;
  if (text[first] == '{') return DSC_PIPE_FORMAT_JSON;
  if (text[first] == '[') return DSC_PIPE_FORMAT_MEGATRON;
  if (text.compare(first, 5, "stage") == 0) return DSC_PIPE_FORMAT_DEEPSPEED;
  const bool has_messages =
      text.find("SEND_") != std::string::npos || text.find("RECV_") != std::string::npos;
  return has_messages ? DSC_PIPE_FORMAT_PYTORCH_COMMS : DSC_PIPE_FORMAT_PYTORCH;
}

// Replaces field names in a message of the library by the options that users know.
std::string in_options(std::string message) {
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"micro_batch_group", "--group"},   {"micro_batches", "--micro-batches"},
      {"forward_only", "--forward-only"}, {"stages is", "--stages is"},
      {"chunks is", "--chunks is"},       {"search->activations", "--activations"},
      {"search->bytes", "--memory"},      {"static_bytes", "--static-bytes"}};
  for (const auto& [field, option] : kNames)
    for (size_t at = 0; (at = message.find(field, at)) != std::string::npos; at += std::strlen(option))
      message.replace(at, std::strlen(field), option);
  return message;
}

// A validator with the wording of dscctl, because that of CLI11's own validator is less clear.
CLI::Validator whole_number() {
  const auto check = [](const std::string& text) {
    const size_t digits = text.starts_with("-") ? 1 : 0;
    const bool is_whole =
        text.size() > digits && text.find_first_not_of("0123456789", digits) == std::string::npos;
    return is_whole ? "" : "expected a whole number, got '" + text + "'";
  };
  return CLI::Validator(check, "");
}

class ScheduleCommand final : public Command {
 public:
  explicit ScheduleCommand(CLI::App& app);
  int run() const override;

 private:
  void add_what();
  void add_output();
  dsc_pipe_schedule_options_t options(const std::string& kind) const;
  void check_usage() const;
  bool is_wanted(const char* kind) const;
  std::vector<Handle> schedules(const Costs& costs) const;
  Handle best(Costs costs) const;
  Handle read_file() const;
  std::string page(std::vector<Handle> made, const Costs& costs) const;
  Priced show(const Handle& schedule, const dsc_pipe_costs_t& costs) const;
  void print(const Handle& schedule, const dsc_pipe_costs_t& costs) const;
  bool has_picture() const {
    return write_.empty() && svg_.empty() && perfetto_.empty() && html_.empty() && !check_;
  }

  std::vector<std::string> kinds_{"1f1b"};
  int32_t stages_ = 4;
  int32_t micro_batches_ = 8;
  int32_t chunks_ = 0;
  int32_t group_ = 0;
  bool forward_only_ = false, merge_ = false, at_once_ = false;
  int64_t activations_ = 0;
  std::string from_;
  std::string format_;  // empty: guessed
  std::string memory_;
  CostOptions cost_options_;
  std::string svg_, perfetto_, html_, write_;
  int32_t width_ = 0;  // width of the picture; 0: not limited
  bool check_ = false, critical_path_ = false;
};

ScheduleCommand::ScheduleCommand(CLI::App& parent)
    : Command(*parent.add_subcommand(
          "schedule", "Prints, draws, simulates, converts and checks pipeline schedules; runs no model")) {
  app().footer(
      "F is a forward pass, B a backward pass; I and W are the halves of a backward pass, for the gradients\n"
      "of the inputs and of the weights. Lower case letters are passes of the second of two chunks. The\n"
      "number is the micro-batch, and dots are idle time.\nExamples: dscctl schedule --kind "
      "zb_v --stages 4 --micro-batches 8\n         dscctl schedule --kind 1f1b --forward 1,1,2,2 --comm 0.1 "
      "--svg 1f1b.svg\n         dscctl schedule --kind 1f1b --kind zb_h1 --kind zb_v --html compare.html\n   "
      "      dscctl schedule --from mine.csv --check\nA list of costs has one value for all stages, one for "
      "each stage (its chunks get equal shares), or one for\neach part of the model (stages times chunks "
      "values). NxV repeats the value V N times: 3x2,1 means 2,2,2,1.\nWith several --kind, a table at the "
      "end "
      "compares them.\nExit code: 0 success, 1 unknown schedule, or a schedule that cannot be run, 2 wrong "
      "usage.");
  add_what();
  cost_options_.add_to(app());
  add_output();
}

void ScheduleCommand::add_what() {
  CLI::Option* kind = app()
                          .add_option("-k,--kind", kinds_,
                                      "Name of the schedule, see docs/schedules.md; auto: searches for the "
                                      "fastest order for these costs; may be repeated (default: 1f1b)")
                          ->type_name("NAME");
  tools::offer(kind, plan::kind_names());
  app()
      .add_option("-s,--stages", stages_, "Devices of the pipeline (default: 4)")
      ->check(whole_number())
      ->type_name("N");
  app()
      .add_option("-m,--micro-batches", micro_batches_, "Micro-batches of a batch (default: 8)")
      ->check(whole_number())
      ->type_name("N");
  app()
      .add_option("-c,--chunks", chunks_, "Parts of the model per stage (default: the schedule's own)")
      ->check(whole_number())
      ->type_name("N");
  app()
      .add_option(
          "--group", group_,
          "For interleaved_1f1b: micro-batches that a stage runs through one chunk before the next chunk")
      ->check(whole_number())
      ->type_name("N");
  app()
      .add_option(
          "--activations", activations_,
          "For auto: maximum number of activations (of one micro-batch in one chunk) that a stage may "
          "hold (default: no limit)")
      ->check(whole_number())
      ->type_name("N");
  app()
      .add_option("--memory", memory_, "For auto: maximum bytes of a stage, such as 80GB (default: no limit)")
      ->type_name("BYTES");
  app().add_flag("--forward-only", forward_only_, "Makes a schedule without backward passes");
  app().add_flag("--merge", merge_, "Merges the two halves of a backward pass if they are consecutive");
  app().add_flag("--at-once", at_once_,
                 "Sends a message directly after the pass that computes it, as PyTorch does");
  auto* from = app()
                   .add_option("--from", from_, "Reads the schedule from a file instead; - is stdin")
                   ->type_name("FILE");
  for (const char* name : {"--kind", "--stages", "--micro-batches", "--chunks", "--group", "--forward-only"})
    from->excludes(name);
  app()
      .add_option("--format", format_,
                  "Format of the file of --from: pytorch, pytorch_comms, deepspeed, megatron or json "
                  "(default: detected)")
      ->check(CLI::IsMember(kFormats))
      ->needs(from)
      ->type_name("FORMAT");
}

void ScheduleCommand::add_output() {
  app().add_option("--svg", svg_, "Writes a drawing")->check(tools::file_to_write())->type_name("FILE");
  app()
      .add_option("--perfetto", perfetto_, "Writes a trace for ui.perfetto.dev")
      ->check(tools::file_to_write())
      ->type_name("FILE");
  app()
      .add_option("--html", html_,
                  "Writes a page for a browser: the schedules of all --kind on one time axis, with memory, "
                  "and sliders for costs, stages, micro-batches and memory")
      ->check(tools::file_to_write())
      ->type_name("FILE");
  app()
      .add_option(
          "--write", write_,
          "Prints the schedule in this format instead: pytorch, pytorch_comms, deepspeed, megatron, json")
      ->check(CLI::IsMember(kFormats))
      ->type_name("FORMAT");
  app().add_flag("--check", check_, "Prints only whether the schedule can be run");
  app().add_flag("--critical-path", critical_path_,
                 "Also prints the operations that cannot be delayed without delaying the end");
  app()
      .add_option("--width", width_,
                  "Cuts the picture into pieces of this many columns (default: the width of the terminal; "
                  "not cut if the output is no terminal)")
      ->check(whole_number())
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N");
}

dsc_pipe_schedule_options_t ScheduleCommand::options(const std::string& kind) const {
  dsc_pipe_schedule_options_t options = whole_pipeline();
  options.merge_backward = merge_ ? 1 : 0;
  options.messages = at_once_ ? DSC_PIPE_MESSAGES_AT_ONCE : DSC_PIPE_MESSAGES_WHEN_NEEDED;
  if (!from_.empty()) return options;
  options.name = kind.c_str();
  options.stages = stages_;
  options.micro_batches = micro_batches_;
  options.chunks = chunks_;
  options.micro_batch_group = group_;
  options.forward_only = forward_only_ ? 1 : 0;
  return options;
}

// Reports the search result on stderr, so that stdout contains only the schedule and can be piped.
Handle ScheduleCommand::best(Costs costs) const {
  dsc_pipe_search_options_t limits = no_limits();
  limits.activations = activations_;
  if (!memory_.empty()) limits.bytes = tools::bytes_of("--memory", memory_);
  dsc_pipe_schedule_info_t wanted{};
  wanted.stages = stages_;
  wanted.chunks = std::max(1, chunks_);
  if (stages_ > 0) {
    cost_options_.expect_parts(costs, wanted.stages, wanted.chunks);
    cost_options_.expect_no_stages(costs, wanted.stages, wanted.chunks);
    costs = costs.of_parts(wanted);
  }
  auto [schedule, result] = find(options("auto"), costs.as_c(), limits);
  std::cerr << "found: " << result.origin << ", makespan " << shortened(result.makespan)
            << (result.is_optimal == 1 ? ", and no order is faster"
                                       : ", and no order takes less than " + shortened(result.bound));
  if (result.best_named[0] != '\0')
    std::cerr << "; " << result.best_named << " takes " << shortened(result.best_named_makespan);
  std::cerr << "\n";
  return std::move(schedule);
}

Handle ScheduleCommand::read_file() const {
  try {
    std::string text = file_text(from_);
    if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);  // a byte order mark, as some editors write
    return read(text, format_.empty() ? guess_format(text) : kFormats.at(format_), options(""));
  } catch (const std::runtime_error& error) {
    const std::string text = error.what(), name = from_ == "-" ? "stdin" : from_;
    throw std::runtime_error(text.starts_with(name) ? text : name + ": " + text);
  }
}

std::vector<Handle> ScheduleCommand::schedules(const Costs& costs) const {
  std::vector<Handle> made;
  if (!from_.empty()) {
    made.push_back(read_file());
    return made;
  }
  const bool needs_one = !svg_.empty() || !perfetto_.empty() || !write_.empty();
  if (needs_one && kinds_.size() > 1)
    throw std::invalid_argument(
        "--kind is given " + std::to_string(kinds_.size()) +
        " times, expected one --kind with --svg, --perfetto and --write; --html accepts several");
  for (const std::string& kind : kinds_) made.push_back(kind == kAuto ? best(costs) : make(options(kind)));
  return made;
}

// Returns how many columns of time a picture may have so that it fits the terminal; 0: not limited.
size_t columns_on_terminal(const std::string& plain) {
  constexpr size_t kFewest = 10;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 0;
  size_t frame = 0, longest = 0;
  for (const std::string& line : tools::split(plain, '\n')) {
    const size_t first = line.find('|'), last = line.rfind('|');
    if (first == last) continue;
    frame = std::max(frame, line.size() - (last - first - 1));
    longest = std::max(longest, line.size());
  }
  return longest > size.ws_col && frame + kFewest <= size.ws_col ? size.ws_col - frame : 0;
}

void ScheduleCommand::print(const Handle& schedule, const dsc_pipe_costs_t& costs) const {
  const std::string plain = draw(schedule, costs, DSC_PIPE_PICTURE_TEXT);
  const std::string text = colors_are_welcome() ? draw(schedule, costs, DSC_PIPE_PICTURE_COLOR) : plain;
  const size_t columns = width_ > 0 ? static_cast<size_t>(width_) : columns_on_terminal(plain);
  std::cout << (columns > 0 ? folded(text, columns) : text);
}

bool is_too_large(const Handle& schedule, const dsc_pipe_costs_t& costs) {
  size_t bytes = 0;
  return dsc_pipe_draw(schedule.get(), &costs, DSC_PIPE_PICTURE_TEXT, nullptr, 0, &bytes) == DSC_ERR_OVERFLOW;
}

void print_numbers(const Priced& priced) {
  std::cout << "makespan " << shortened(priced.makespan) << ", idle " << 100 * idle_part(priced)
            << " %, activations held by a stage at most " << peak_activations(priced)
            << "; too large for a picture\n";
}

Priced ScheduleCommand::show(const Handle& schedule, const dsc_pipe_costs_t& costs) const {
  const Priced priced = simulate(schedule, costs);
  if (check_)
    std::cout << "the schedule can be run\n";
  else if (!write_.empty())
    std::cout << write(schedule, kFormats.at(write_));
  else if (has_picture()) {
    if (is_too_large(schedule, costs))
      print_numbers(priced);
    else
      print(schedule, costs);
  }
  if (critical_path_) std::cout << critical_path_of(schedule, costs);
  if (!svg_.empty()) tools::write_file(svg_, draw(schedule, costs, DSC_PIPE_PICTURE_SVG));
  if (!perfetto_.empty()) tools::write_file(perfetto_, draw(schedule, costs, DSC_PIPE_PICTURE_PERFETTO));
  return priced;
}

bool ScheduleCommand::is_wanted(const char* kind) const {
  return from_.empty() && std::find(kinds_.begin(), kinds_.end(), kind) != kinds_.end();
}

// Rejects options that would have no effect.
void ScheduleCommand::check_usage() const {
  if (app().count("--activations") > 0 && activations_ < 1)
    throw std::invalid_argument("--activations: expected 1 or more, got " + std::to_string(activations_));
  if (!memory_.empty() && tools::bytes_of("--memory", memory_) <= 0)
    throw std::invalid_argument("--memory: expected more than 0 bytes, got '" + memory_ + "'");
  if (activations_ != 0 && !is_wanted(kAuto))
    throw std::invalid_argument("--activations is a limit for --kind auto, but --kind auto is not given");
  if (!memory_.empty() && !is_wanted(kAuto))
    throw std::invalid_argument("--memory is a limit for --kind auto, but --kind auto is not given");
  if (check_ && !write_.empty())
    throw std::invalid_argument(
        "--write prints the schedule, and --check prints only whether the schedule can be run: expected only "
        "one of them");
  if (critical_path_ && (check_ || !write_.empty()))
    throw std::invalid_argument("--critical-path cannot be given together with --check or --write");
  if (width_ > 0 && !has_picture())
    throw std::invalid_argument(
        "--width applies to the picture, but no picture is printed with these options");
}

// For schedules with a name, the page also offers other sizes.
std::string ScheduleCommand::page(std::vector<Handle> made, const Costs& costs) const {
  std::vector<Family> families;
  for (size_t i = 0; i < made.size(); ++i) {
    families.push_back({std::move(made[i]), {}});
    if (!from_.empty() || kinds_[i] == kAuto) continue;
    families.back().make = [this, kind = kinds_[i]](int32_t stages, int32_t micro_batches) {
      dsc_pipe_schedule_options_t other = options(kind);
      other.stages = stages;
      other.micro_batches = micro_batches;
      return make(other);
    };
  }
  PageFacts facts;
  facts.are_us = cost_options_.has_network();
  if (!memory_.empty()) facts.memory_bytes = tools::bytes_of("--memory", memory_);
  return html_of(families, costs, facts);
}

int ScheduleCommand::run() const {
  try {
    check_usage();
    Costs costs = cost_options_.costs();
    std::vector<Handle> made = schedules(costs);
    std::vector<Priced> prices;
    for (const Handle& schedule : made) {
      const auto info = describe(schedule);
      cost_options_.expect_parts(costs, info.stages, info.chunks);
      Costs own = costs.of_parts(info);
      prices.push_back(show(schedule, own.as_c()));
    }
    if (made.size() > 1 && has_picture()) std::cout << "\n" << comparison_of(made, prices);
    if (!html_.empty()) tools::write_file(html_, page(std::move(made), costs));
  } catch (const std::invalid_argument& wrong) {
    std::cerr << "dscctl: " << wrong.what() << "\nTry 'dscctl schedule --help'.\n";
    return kWrongUsage;
  } catch (const std::exception& error) {
    std::cerr << "dscctl: " << in_options(error.what()) << "\n";
    return kRefused;
  }
  std::cout << std::flush;
  return std::cout ? kFine : kRefused;
}

}  // namespace

std::unique_ptr<Command> make_command(CLI::App& app) { return std::make_unique<ScheduleCommand>(app); }

}  // namespace dscctl::schedule
