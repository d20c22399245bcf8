#include "dscctl/plan/command.hpp"

#include <unistd.h>

#include <chrono>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/output_file.hpp"
#include "common/reference/outline.hpp"
#include "common/units.hpp"
#include "dscctl/plan/report.hpp"
#include "dscctl/schedule/cost_options.hpp"

namespace dscctl::plan {
namespace {

constexpr int kFine = 0, kNothingFits = 1, kRefused = 2;

class PlanCommand final : public Command {
 public:
  explicit PlanCommand(CLI::App& app);
  int run() const override;

 private:
  void add_model();
  void add_network();
  void add_choice();
  Question question(const std::vector<Layer>& layers) const;
  int answer() const;

  std::string layers_, devices_, batch_, memory_, top_ = "10";
  std::string state_ = "4", overhead_ = "0", overlap_ = "1", bucket_;
  NetworkOptions network_;
  std::vector<std::string> kinds_;
  std::string stages_, micro_batches_, chunks_;
  bool as_json_ = false;
  std::string html_;
};

PlanCommand::PlanCommand(CLI::App& parent)
    : Command(*parent.add_subcommand(
          "plan", "Compares schedules, stages, chunks and micro-batches for a model, and recommends one")) {
  app().footer(
      "A candidate is a schedule with numbers of stages, replicas, chunks and micro-batches. No model is "
      "run:\nevery candidate is simulated with the times and bytes of the layers. See docs/plan.md.\n"
      "Example: dscctl plan --layers model.csv --devices 8 --memory 80GB --batch 64 "
      "--latency-us 10 --bandwidth 25GB/s\nThe times of messages and all-reduces must be known: give "
      "--bandwidth, --reduce-bandwidth or --network.\nExit code: 0 success, 1 no candidate fits in the "
      "memory, 2 wrong usage or input.");
  add_model();
  add_network();
  add_choice();
}

void PlanCommand::add_model() {
  app()
      .add_option("--layers", layers_,
                  "CSV with a header, or JSON; - is stdin. Columns, per sample: name, forward_us, "
                  "backward_input_us and backward_weight_us or backward_us, weight_bytes, activation_bytes, "
                  "output_bytes; and tied, a name that is the same for layers that share weights")
      ->required()
      ->type_name("FILE");
  app()
      .add_option("--devices", devices_, "Number of devices: stages times replicas")
      ->required()
      ->type_name("N");
  app()
      .add_option("--batch", batch_, "Samples in one step, over all replicas")
      ->required()
      ->type_name("SAMPLES");
  app()
      .add_option("--memory", memory_, "Memory of a device, such as 80GB (default: no limit)")
      ->type_name("BYTES");
  app()
      .add_option("--state", state_,
                  "Bytes of weights, gradients and optimizer per byte of weights (default: 4, as for Adam)")
      ->type_name("FACTOR");
  app()
      .add_option("--overhead-us", overhead_,
                  "Fixed time that each layer adds to a forward pass and to each half of a backward pass "
                  "(default: 0)")
      ->type_name("US");
  app()
      .add_option("--overlap", overlap_,
                  "Time of two overlapped passes divided by the sum of their separate times, in dualpipe_v "
                  "(default: 1, no gain)")
      ->type_name("PART");
}

void PlanCommand::add_network() {
  network_.add_to(app());
  app()
      .add_option("--bucket", bucket_,
                  "Bytes of gradients in one all-reduce, such as 25MB (default: all gradients of a part)")
      ->type_name("BYTES");
}

void PlanCommand::add_choice() {
  CLI::Option* kind =
      app()
          .add_option("-k,--kind", kinds_,
                      "Compares only these schedules; auto: searches for an order (default: all)")
          ->delimiter(',')
          ->type_name("NAME[,NAME...]");
  tools::offer(kind, kind_names());
  const auto list = [&](const char* option, std::string& text, const char* help) {
    app().add_option(option, text, help)->type_name("N[,N...]");
  };
  list("-s,--stages", stages_,
       "Compares only these numbers of stages (default: all that divide the devices)");
  list("-m,--micro-batches", micro_batches_,
       "Compares only these numbers of micro-batches (default: all that divide the batch of a replica)");
  list("-c,--chunks", chunks_,
       "Compares only these numbers of parts of the model per stage (default: 1, 2, 4, ...)");
  app().add_option("--top", top_, "Maximum number of rows of the table (default: 10)")->type_name("N");
  app().add_flag("--json", as_json_, "Prints JSON");
  app()
      .add_option(
          "--html", html_,
          "Writes a page for a browser: the best five candidates side by side, with sliders for costs")
      ->check(tools::file_to_write())
      ->type_name("FILE");
}

std::vector<int> list_or_all(const std::string& option, const std::string& text) {
  return text.empty() ? std::vector<int>{} : tools::whole_list_of(option, text, 1);
}

Question PlanCommand::question(const std::vector<Layer>& layers) const {
  Question it;
  it.layers = layers;
  it.devices = tools::whole_of("--devices", devices_, 1);
  it.batch = tools::whole_of("--batch", batch_, 1);
  if (!memory_.empty()) it.memory_bytes = tools::bytes_of("--memory", memory_);
  if (!memory_.empty() && it.memory_bytes <= 0)
    throw std::invalid_argument("--memory: expected more than 0 bytes, got '" + memory_ + "'");
  it.state = tools::number_of("--state", state_);
  it.overhead_us = tools::number_of("--overhead-us", overhead_);
  it.overlap = tools::part_of("--overlap", overlap_);
  if (!bucket_.empty()) it.bucket_bytes = tools::bytes_of("--bucket", bucket_);
  it.kinds = kinds_;
  it.stages = list_or_all("--stages", stages_);
  it.micro_batches = list_or_all("--micro-batches", micro_batches_);
  it.chunks = list_or_all("--chunks", chunks_);
  it.top = static_cast<size_t>(tools::whole_of("--top", top_, 1));
  it.network = network_.network(it.devices);  // last, because it may measure the network
  return it;
}

// Shows progress on a terminal if the search takes longer than a second.
class Progress {
 public:
  ~Progress() {
    if (was_told_) std::cerr << "\r\033[K" << std::flush;
  }
  void tell(size_t done, size_t all, const Row* best) {
    const auto now = std::chrono::steady_clock::now();
    if (!is_terminal_ || now < next_) return;
    next_ = now + std::chrono::milliseconds(200);
    was_told_ = true;
    std::cerr << "\r\033[Kdscctl: " << done << " of " << all << " candidates";
    if (best != nullptr) std::cerr << "; so far " << best->kind << ", " << tools::time_text(best->step_us);
    std::cerr << std::flush;
  }

 private:
  const bool is_terminal_ = isatty(STDERR_FILENO) == 1;
  bool was_told_ = false;
  std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::now() + std::chrono::seconds(1);
};

int PlanCommand::answer() const {
  const Layers layers = read_layers(layers_);
  const Question asked = question(layers.all);
  const Answer found = [&] {
    Progress progress;
    return find_plans(asked,
                      [&](size_t done, size_t all, const Row* best) { progress.tell(done, all, best); });
  }();
  if (as_json_)
    std::cout << json_of(asked, layers, found).dump(1, ' ', false, Json::error_handler_t::replace) << "\n";
  else
    std::cout << assumptions(asked, found) << (found.rows.empty() ? "" : table_of(found) + "\n")
              << recommendation(asked, found) << "\n"
              << remarks(asked, layers, found);
  if (!html_.empty() && found.rows.empty())
    std::cerr << "dscctl: " << html_ << " was not written, because no candidate was found\n";
  else if (!html_.empty())
    tools::write_file(html_, page_of_rows(asked, found));
  return found.rows.empty() ? kNothingFits : kFine;
}

int PlanCommand::run() const {
  try {
    const int code = answer();
    return std::cout.flush() ? code : kRefused;
  } catch (const std::exception& error) {
    std::cerr << "dscctl: " << error.what() << "\n";
    return kRefused;
  }
}

}  // namespace

std::unique_ptr<Command> make_command(CLI::App& app) { return std::make_unique<PlanCommand>(app); }

}  // namespace dscctl::plan
