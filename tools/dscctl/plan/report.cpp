#include "dscctl/plan/report.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "common/units.hpp"
#include "dscctl/schedule/cost_options.hpp"
#include "dscctl/schedule/html.hpp"

namespace dscctl::plan {
namespace {

using tools::bytes_text;
using tools::time_text;

std::string counted(int number, const std::string& noun) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : noun.ends_with("ch") ? "es" : "s");
}

std::string percent_text(double part) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * part);
  return text;
}

std::string shape_text(const Row& row) {
  const Shape& it = row.shape;
  return row.kind + " on " + counted(it.stages, "stage") + " x " + counted(it.replicas, "replica") +
         (it.chunks > 1 ? " with " + counted(it.chunks, "chunk") + " each" : "") + ", " +
         std::to_string(it.micro_batches) + (it.micro_batches == 1 ? " micro-batch" : " micro-batches") +
         " of " + counted(it.samples, "sample");
}

double samples_per_s(const Row& row) {
  const double samples =
      static_cast<double>(row.shape.samples) * row.shape.micro_batches * row.shape.replicas;
  return row.step_us > 0 ? samples / row.step_us * 1e6 : 0;
}

std::string rate_text(double per_s) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", per_s < 10 ? 2 : per_s < 100 ? 1 : 0, per_s);
  return text;
}

std::string slower_text(const Row& row, const Row& best) {
  const double more = best.step_us > 0 ? std::max(0.0, row.step_us / best.step_us - 1) : 0;
  return &row == &best ? "best" : "+" + percent_text(more);
}

double waiting_us(const Row& row) { return row.step_us - row.busy_us - row.network_us; }

std::string kinds_text(const Row& row) {
  std::string text = row.kind;
  for (const std::string& other : row.as_good) text += "," + other;
  return text;
}

constexpr const char* kRecommended = "-> ";
using Line = std::array<std::string, 9>;

Line line_of(const Row& row, const Row& best) {
  const Shape& it = row.shape;
  return {(&row == &best ? kRecommended : std::string(std::strlen(kRecommended), ' ')) + kinds_text(row),
          std::to_string(it.stages) + " x " + std::to_string(it.replicas),
          std::to_string(it.chunks),
          std::to_string(it.micro_batches) + " x " + std::to_string(it.samples),
          time_text(row.step_us),
          rate_text(samples_per_s(row)),
          percent_text(row.idle),
          bytes_text(row.peak_bytes),
          slower_text(row, best)};
}

// Aligns the first column to the left, and the others to the right.
std::string aligned(const std::vector<Line>& lines) {
  std::array<size_t, std::tuple_size_v<Line>> widths{};
  for (const Line& line : lines)
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  std::string text;
  for (const Line& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) {
      const std::string space(widths[i] - line[i].size(), ' ');
      text += i == 0 ? line[i] + space : "  " + space + line[i];
    }
    text += "\n";
  }
  return text;
}

// Returns the largest of the reasons why a row is slower than the best row.
std::string why_slower(const Row& row, const Row& best) {
  struct Reason {
    double us;
    const char* words;
  };
  const std::array<Reason, 3> reasons{
      Reason{row.busy_us - best.busy_us, " longer computing on its busiest stage"},
      Reason{waiting_us(row) - waiting_us(best), " longer waiting for other stages"},
      Reason{row.network_us - best.network_us, " longer for messages and all-reduces"}};
  const Reason& most = *std::max_element(reasons.begin(), reasons.end(),
                                         [](const Reason& a, const Reason& b) { return a.us < b.us; });
  return time_text(most.us) + most.words;
}

std::string next_best(const Answer& answer) {
  if (answer.rows.size() < 2) return "";
  const Row &best = answer.rows[0], &next = answer.rows[1];
  const double more = next.step_us / best.step_us - 1;
  const std::string name = " The next best, " + shape_text(next) + ", takes ";
  if (more >= kAsFast) return name + percent_text(more) + " longer: " + why_slower(next, best) + ".";
  const double bytes = next.peak_bytes - best.peak_bytes;
  return name + "as long" +
         (bytes > 0   ? " and needs " + bytes_text(bytes) + " more memory"
          : bytes < 0 ? " and needs " + bytes_text(-bytes) + " less memory"
                      : "") +
         ".";
}

// Mentions a plan that takes a little longer but needs much less memory.
std::string with_less_memory(const Answer& answer) {
  constexpr double kLittle = 0.005, kMuch = 0.1;
  const Row& best = answer.rows.front();
  const Row* least = nullptr;
  for (const Row& row : answer.rows)
    if (row.step_us <= best.step_us * (1 + kLittle) && row.peak_bytes < best.peak_bytes * (1 - kMuch) &&
        (least == nullptr || row.peak_bytes < least->peak_bytes))
      least = &row;
  if (least == nullptr) return "";
  return "With " + percent_text(std::max(0.0, least->step_us / best.step_us - 1)) + " more time " +
         shape_text(*least) + " needs " + bytes_text(best.peak_bytes - least->peak_bytes) + " less memory.\n";
}

std::string layers_text(const Row& row) {
  std::string text;
  for (size_t part = 0; part + 1 < row.boundaries.size(); ++part) {
    const size_t first = row.boundaries[part], last = row.boundaries[part + 1] - 1;
    text +=
        (part == 0 ? "" : " | ") + std::to_string(first) + (last > first ? "-" + std::to_string(last) : "");
  }
  return text;
}

double tied_us(const Question& question, const Row& row) {
  return costs_of(question, row.shape, row.boundaries, row.placement).after;
}

std::string in_all(const Question& question, const Row& best) {
  std::string text = "In each step the busiest stage computes for " + time_text(best.busy_us);
  if (best.shape.stages > 1)
    text += waiting_us(best) < kAsFast * best.step_us
                ? ", hardly waits for other stages"
                : ", waits for other stages for " + time_text(waiting_us(best));
  if (best.network_us > 0) text += ", and messages and all-reduces add " + time_text(best.network_us);
  if (const double us = tied_us(question, best); us > 0)
    text += ", of which the sums of tied gradients take " + time_text(us);
  return text + ".";
}

// dscctl schedule does not know layers, so its drawing cannot show tied weights.
std::string without_ties(const Question& question, const Row& row) {
  const double us = tied_us(question, row);
  return us > 0 ? "The drawing does not show the sums of tied gradients, which take " + time_text(us) +
                      " at the end of the step.\n"
                : "";
}

std::string best_text(const Question& question, const Answer& answer) {
  const Row& best = answer.rows.front();
  const std::string memory =
      question.memory_bytes > 0 ? " of the " + bytes_text(question.memory_bytes) + " of a device" : "";
  std::string text = "Take " + shape_text(best) + ": " + time_text(best.step_us) + " a step, " +
                     rate_text(samples_per_s(best)) + " samples/s, " + bytes_text(best.peak_bytes) + memory +
                     " on stage " + std::to_string(best.fullest) + ", which needs the most.\n";
  text += in_all(question, best) + next_best(answer) + "\n" + with_less_memory(answer);
  if (answer.faster)
    text += "With " + bytes_text(answer.faster->peak_bytes) + " of memory " + shape_text(*answer.faster) +
            " would take " + time_text(answer.faster->step_us) + ".\n";
  const char* parts = best.shape.parts() == 1 ? "Layers: " : "Layers of each part: ";
  return text + parts + layers_text(best) + "\nTo draw it: " + command_of(question, best) + "\n" +
         without_ties(question, best);
}

std::string ranks_text(const NetworkLine& line) {
  char text[96];
  std::snprintf(text, sizeof text, "%d ranks (largest error of the fit %.0f %%)", line.ranks,
                100 * line.largest_error);
  return text;
}

// Describes the measurements of the network: the numbers of ranks, and how far the times are from the fitted
// line.
std::string measured_text(const Question& question) {
  const Network& network = question.network;
  if (!network.measured_messages) return "";
  std::string text =
      "Measured: messages with " + ranks_text(*network.measured_messages) + ", all-reduces with ";
  for (size_t i = 0; i < network.reductions.measured.size(); ++i)
    text += (i == 0 ? "" : ", ") + ranks_text(network.reductions.measured[i]);
  return text + ".\n";
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Formats values for a command that people read: times with six digits, and large numbers of bytes with a
// unit.
std::string short_time(double value) { return tools::exact_text(tools::rounded_to(value, 6)); }

std::string short_bytes(double bytes) {
  constexpr double kMany = 1e9;
  if (bytes < kMany) return tools::exact_text(std::round(bytes));
  return tools::exact_text(tools::rounded_to(bytes / kMany, 6)) + "GB";
}

using ToText = std::string (*)(double);

// Returns the option with its values. A single value would mean a whole stage.
std::string costs_words(const char* option, const std::vector<double>& values, int chunks, ToText to_text) {
  std::vector<std::string> texts;
  for (const double value : values) texts.push_back(to_text(value));
  if (chunks == 1 && std::adjacent_find(texts.begin(), texts.end(), std::not_equal_to<>()) == texts.end())
    texts.resize(1);
  return std::string(" ") + option + " " + schedule::list_text(texts);
}

std::string value_words(const char* option, double value, ToText to_text = short_time) {
  return value > 0 ? std::string(" ") + option + " " + to_text(value) : "";
}

// Formats a number for programs, without digits that come from rounding errors.
Json number_json(double value) {
  if (value == std::floor(value) && std::abs(value) < 0x1p53) return static_cast<int64_t>(value);
  return tools::rounded_to(value, 9);
}

Json row_json(const Question& question, const Row& row, const Row* best) {
  Json json{{"schedule", row.kind},
            {"as_good", row.as_good},
            {"stages", row.shape.stages},
            {"replicas", row.shape.replicas},
            {"chunks", row.shape.chunks},
            {"micro_batches", row.shape.micro_batches},
            {"samples", row.shape.samples},
            {"step_us", number_json(row.step_us)},
            {"samples_per_s", number_json(samples_per_s(row))},
            {"idle", number_json(row.idle)},
            {"peak_bytes", number_json(row.peak_bytes)},
            {"fullest_stage", row.fullest},
            {"busy_us", number_json(row.busy_us)},
            {"waiting_us", number_json(waiting_us(row))},
            {"network_us", number_json(row.network_us)},
            {"tied_us", number_json(tied_us(question, row))},
            {"boundaries", row.boundaries},
            {"command", command_of(question, row)}};
  if (best != nullptr) json["slower"] = number_json(best->step_us > 0 ? row.step_us / best->step_us - 1 : 0);
  if (row.kind == kAuto) json["bound_us"] = number_json(row.origin_bound_us);
  return json;
}

}  // namespace

std::string assumptions(const Question& question, const Answer& answer) {
  const Network& network = question.network;
  std::string text = "Assumed: ";
  if (answer.uses_messages) text += network.message_words() + "; ";
  if (answer.uses_reductions) {
    text += network.reduction_words() + "; gradients are as large as weights, reduced ";
    text +=
        question.bucket_bytes > 0 ? "in buckets of " + bytes_text(question.bucket_bytes) : "once per part";
    text += "; ";
  }
  if (has_ties(question))
    text +=
        "layers of one stage that share weights have one copy of them, and stages that share weights add up "
        "their gradients by such an all-reduce at the end; ";
  if (!answer.uses_messages && !answer.uses_reductions) text += "one device, so there is no network; ";
  return text + short_time(question.state) +
         " bytes of weights, gradients and optimizer per byte of weights (--state).\n\n";
}

std::string table_of(const Answer& answer) {
  std::vector<Line> lines{{"   schedule", "stages x replicas", "chunks", "micro-batches x samples", "step",
                           "samples/s", "idle", "peak memory", "slower"}};
  for (const Row& row : answer.rows) lines.push_back(line_of(row, answer.rows.front()));
  return aligned(lines);
}

std::string recommendation(const Question& question, const Answer& answer) {
  if (!answer.rows.empty()) return best_text(question, answer);
  if (!answer.least) return "No order was found for these options.\n";
  const Row& least = *answer.least;
  return "Nothing fits in " + bytes_text(question.memory_bytes) + ": the smallest memory found is " +
         bytes_text(least.least_bytes) + ", for " + shape_text(least) + ".\n";
}

std::string remarks(const Question& question, const Layers& layers, const Answer& answer) {
  const Counts& counts = answer.counts;
  std::string text =
      std::to_string(counts.all) + " configurations: " + std::to_string(counts.simulated) + " simulated";
  if (counts.hopeless > 0) text += ", " + std::to_string(counts.hopeless) + " that cannot be among the best";
  if (counts.left > 0)
    text += ", " + std::to_string(counts.left) + " left out because simulating them would take too long";
  if (counts.too_large > 0) text += "; " + std::to_string(counts.too_large) + " more are too large";
  text += ".";
  if (counts.improved > 0)
    text += " Alternative layer splits were tried for " + std::to_string(counts.improved) + ".";
  if (counts.searched > 0)
    text += " auto searched for the best order of " +
            counted(static_cast<int>(counts.searched), "configuration") + ".";
  if (counts.repeated > 0)
    text += " Not shown: " + std::to_string(counts.repeated) +
            " with the same schedule and number of stages as a row of the table, the same time (within 0.05 "
            "%) and no less memory.";
  text += "\n";
  if (layers.are_split)
    text += "Only backward_us is given: each half of a backward pass is assumed to take half of it.\n";
  text += measured_text(question);
  return text + "The time of the optimizer is not included.\n";
}

std::string command_of(const Question& question, const Row& row) {
  constexpr double kRoomForRounding = 1 + 1e-5;  // margin for rounding of the held bytes
  const schedule::Costs costs =
      costs_of(question, row.shape, row.boundaries, row.kind == kAuto ? Placement::kUnknown : row.placement);
  const int chunks = row.shape.chunks;
  const auto words = [&](const char* option, const std::vector<double>& values, ToText to_text) {
    return costs_words(option, values, chunks, to_text);
  };
  std::string text = "dscctl schedule --kind " + row.kind + " --stages " + std::to_string(row.shape.stages) +
                     " --micro-batches " + std::to_string(row.shape.micro_batches);
  if (chunks > 1) text += " --chunks " + std::to_string(chunks);
  text += words("--forward", costs.forward, short_time) +
          words("--backward-input", costs.backward_input, short_time) +
          words("--backward-weight", costs.backward_weight, short_time) +
          words("--activation-bytes", costs.activation_bytes, short_bytes) +
          words("--static-bytes", costs.static_bytes, short_bytes);
  if (costs.bytes_per_time > 0) text += words("--message-bytes", costs.message_bytes, short_bytes);
  text += value_words("--latency", costs.latency) + value_words("--bandwidth", costs.bytes_per_time);
  if (row.shape.replicas > 1 && (costs.reduce_latency > 0 || costs.reduce_bytes_per_time > 0))
    text += words("--gradient-bytes", costs.gradient_bytes, short_bytes) +
            value_words("--bucket", costs.bucket_bytes, short_bytes) +
            value_words("--reduce-latency", costs.reduce_latency) +
            value_words("--reduce-bandwidth", costs.reduce_bytes_per_time);
  if (costs.overlap != 1) text += " --overlap " + short_time(costs.overlap);
  if (row.kind == kAuto)
    text += value_words("--memory", question.memory_bytes * kRoomForRounding, short_bytes);
  return text;
}

std::string page_of_rows(const Question& question, const Answer& answer) {
  constexpr size_t kMostPlans = 5;
  std::vector<schedule::Shown> plans;
  double operations = 0;
  for (const Row& row : answer.rows) {
    operations += 3.0 * row.shape.parts() * row.shape.micro_batches;
    const bool is_too_much = operations > static_cast<double>(schedule::kMostShown);
    if (plans.size() == kMostPlans || (is_too_much && !plans.empty())) break;
    const std::string title =
        shape_text(row) + ": " + time_text(row.step_us) + ", " + bytes_text(row.peak_bytes);
    plans.push_back(
        {schedule_of(question, row), title, costs_of(question, row.shape, row.boundaries, row.placement)});
  }
  return schedule::html_of(plans, {first_line(assumptions(question, answer)), true, question.memory_bytes});
}

Json json_of(const Question& question, const Layers& layers, const Answer& answer) {
  const Counts& counts = answer.counts;
  Json names = Json::array(), rows = Json::array();
  for (const Layer& layer : question.layers) names.push_back(layer.name);
  for (const Row& row : answer.rows) rows.push_back(row_json(question, row, &answer.rows.front()));
  return {{"assumed", first_line(assumptions(question, answer))},
          {"devices", question.devices},
          {"batch", question.batch},
          {"memory_bytes", question.memory_bytes > 0 ? Json(question.memory_bytes) : Json()},
          {"layers", names},
          {"candidates",
           {{"all", counts.all},
            {"simulated", counts.simulated},
            {"cannot_be_shown", counts.hopeless},
            {"left_out", counts.left},
            {"too_large", counts.too_large},
            {"other_cuts", counts.improved},
            {"searched", counts.searched},
            {"repeated", counts.repeated}}},
          {"rows", rows},
          {"faster_with_more_memory", answer.faster ? row_json(question, *answer.faster, nullptr) : Json()},
          {"least_bytes", answer.least ? Json(answer.least->least_bytes) : Json()},
          {"recommendation", recommendation(question, answer)},
          {"remarks", remarks(question, layers, answer)}};
}

}  // namespace dscctl::plan
