#include "dscctl/plan/model.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>

#include "common/suggest.hpp"

namespace dscctl::plan {
namespace {

// Different limits for the parts of a model are used only up to this number of steps. With them, a partition
// takes layers^2 x parts steps.
constexpr double kMostSteps = 2e7;

bool is_among(const std::vector<int>& wanted, int value) {
  return wanted.empty() || std::find(wanted.begin(), wanted.end(), value) != wanted.end();
}

std::vector<int> divisors(int number) {
  std::vector<int> all;
  for (int one = 1; one <= number / one; ++one) {
    if (number % one != 0) continue;
    all.push_back(one);
    if (one != number / one) all.push_back(number / one);
  }
  std::sort(all.begin(), all.end());
  return all;
}

std::vector<const Kind*> wanted_kinds(const Question& question) {
  std::vector<std::string> known{kAuto};
  for (const Kind& kind : kinds()) known.emplace_back(kind.name);
  std::string list;
  for (const std::string& name : known) list += (list.empty() ? "" : ", ") + name;
  bool are_named = false;
  for (const std::string& name : question.kinds) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw std::invalid_argument("--kind: unknown schedule '" + name + "'" +
                                  tools::did_you_mean(name, known) + " (known schedules: " + list + ")");
    are_named = are_named || name != kAuto;
  }
  std::vector<const Kind*> wanted;
  for (const Kind& kind : kinds())
    if (!are_named || std::count(question.kinds.begin(), question.kinds.end(), kind.name) > 0)
      wanted.push_back(&kind);
  return wanted;
}

// Returns 2, 4, 8 and so on, unless the user has chosen the numbers of chunks.
std::vector<int> chunks_for(const Question& question, const Kind& kind, int stages) {
  const int most = static_cast<int>(question.layers.size()) / stages;
  std::vector<int> all;
  if (kind.chunks > 0) {
    if (kind.chunks <= most && is_among(question.chunks, kind.chunks)) all.push_back(kind.chunks);
  } else if (question.chunks.empty()) {
    for (int chunks = 2; chunks <= most; chunks *= 2) all.push_back(chunks);
  } else {
    for (const int chunks : question.chunks)
      if (chunks >= 2 && chunks <= most) all.push_back(chunks);
  }
  return all;
}

// A schedule that is given as a list can always be made unless the list is too long. It is made only when it
// is simulated, because making it takes long.
dsc_result_t try_to_make(const Candidate& one) {
  constexpr double kLongestList = 0x1p21;  // micro-batches times parts
  const double length = static_cast<double>(one.shape.parts()) * one.shape.micro_batches;
  if (one.kind->is_listed) return length > kLongestList ? DSC_ERR_OVERFLOW : DSC_OK;
  dsc_pipe_schedule_options_t options = schedule::whole_pipeline();
  options.name = one.kind->name;
  options.stages = one.shape.stages;
  options.micro_batches = one.shape.micro_batches;
  options.chunks = one.shape.chunks;
  dsc_pipe_schedule_t* made = nullptr;
  const dsc_result_t result = dsc_pipe_schedule_create(&options, &made);
  dsc_pipe_schedule_destroy(made);
  return result;
}

bool takes_time_to_reduce(const Question& question, const Shape& shape) {
  return shape.replicas > 1 && question.network.reduction(shape.replicas).takes_time();
}

// On one stage every schedule takes the same time, so one is enough. This is not true if gradients are
// reduced during the backward passes, or if two overlapped passes take less time than their sum.
std::vector<const Kind*> for_shape(const Question& question, const std::vector<const Kind*>& wanted,
                                   const Shape& shape) {
  if (shape.stages > 1 || question.overlap < 1 || takes_time_to_reduce(question, shape)) return wanted;
  const Kind* plain = nullptr;
  for (const Kind* kind : wanted)
    if (kind->chunks == 1 && (plain == nullptr || std::string(kind->name) == "1f1b")) plain = kind;
  return plain == nullptr ? wanted : std::vector<const Kind*>{plain};
}

void add_candidates(const Question& question, Shape shape, const std::vector<const Kind*>& wanted,
                    Candidates& found) {
  const int samples = question.batch / shape.replicas;
  for (const int micro_batches : divisors(samples)) {
    if (!is_among(question.micro_batches, micro_batches)) continue;
    shape.micro_batches = micro_batches;
    shape.samples = samples / micro_batches;
    for (const Kind* kind : for_shape(question, wanted, shape))
      for (const int chunks : chunks_for(question, *kind, shape.stages)) {
        shape.chunks = chunks;
        const dsc_result_t result = try_to_make({kind, shape});
        if (result == DSC_OK) found.all.push_back({kind, shape});
        if (result == DSC_ERR_OVERFLOW) ++found.too_large;
      }
  }
}

double sum_of(const Question& question, double Layer::*value, size_t first, size_t end) {
  double sum = 0;
  for (size_t i = first; i < end; ++i) sum += question.layers[i].*value;
  return sum;
}

// Returns which stage holds the weights of a part: parts of the same stage share tied weights. If the
// placement is unknown, each part counts as a separate holder.
int holder_of(const Shape& shape, int part, Placement placement) {
  if (placement == Placement::kUnknown) return part;
  dsc_pipe_schedule_info_t info{};
  info.stages = shape.stages;
  info.placement = placement == Placement::kZigzag ? DSC_PIPE_PLACEMENT_ZIGZAG : DSC_PIPE_PLACEMENT_LOOP;
  return schedule::stage_of(info, part);
}

// For each name of tied weights, the stages that hold them.
using Holders = std::map<std::string, std::set<int>>;

// Returns the bytes of a part's weights. Tied weights that its stage already holds do not count.
double weights_of(const Question& question, size_t first, size_t end, int holder, Holders& holders) {
  double sum = 0;
  for (size_t i = first; i < end; ++i) {
    const Layer& layer = question.layers[i];
    if (layer.tied.empty() || holders[layer.tied].insert(holder).second) sum += layer.weight_bytes;
  }
  return sum;
}

// Stages that hold the same tied weights add up their gradients at the end of a step, one name after another.
double tied_us(const Question& question, const Shape& shape, const Holders& holders) {
  std::vector<double> us(static_cast<size_t>(shape.parts()));
  for (const auto& [name, stages] : holders) {
    if (stages.size() < 2) continue;
    const auto layer = std::find_if(question.layers.begin(), question.layers.end(),
                                    [&, &key = name](const Layer& it) { return it.tied == key; });
    const Link link = question.network.reduction(static_cast<int>(stages.size()));
    const double own =
        link.latency_us + (link.bytes_per_us > 0 ? layer->weight_bytes / link.bytes_per_us : 0);
    for (const int stage : stages) us[static_cast<size_t>(stage)] += own;
  }
  return *std::max_element(us.begin(), us.end());
}

std::vector<double> times_of(const Question& question, int samples) {
  std::vector<double> times;
  for (const Layer& layer : question.layers) times.push_back(layer_us(question, layer, samples));
  return times;
}

Boundaries cut(const std::vector<double>& weights, int parts, const dsc_pipe_partition_options_t* options) {
  Boundaries boundaries(static_cast<size_t>(parts) + 1);
  const dsc_result_t result = dsc_pipe_partition(weights.data(), weights.size(), static_cast<size_t>(parts),
                                                 options, boundaries.data());
  if (options != nullptr && result == DSC_ERR_INVALID_ARG) return {};
  schedule::expect_ok(result);
  return boundaries;
}

// Returns how many micro-batches' activations a part holds for each of its layers, on the stage that holds
// most. The chunks of a stage share what the stage holds.
double most_held(const Shape& shape, const Held& held) {
  const int64_t most = *std::max_element(held.of_stage.begin(), held.of_stage.end());
  return static_cast<double>(most) / shape.chunks;
}

// Weights layers as on the stage that holds most. If a stage holds less, its limit is raised, but only so far
// that a part within the limit still fits.
double limit_of(const Question& question, const Shape& shape, double most, double held) {
  double raised = HUGE_VAL;
  for (const Layer& layer : question.layers) {
    const double here = layer_bytes(question, layer, shape.samples, held);
    if (here > 0) raised = std::min(raised, layer_bytes(question, layer, shape.samples, most) / here);
  }
  return question.memory_bytes / shape.chunks * (std::isfinite(raised) ? raised : 1);
}

// Explains why a number of stages has no schedule: the chunks, the micro-batches or the schedule do not fit.
std::string why_no_schedule(const Question& question, Shape shape, const std::vector<const Kind*>& wanted) {
  const int samples = question.batch / shape.replicas;
  std::string why =
      "no number in --micro-batches divides the " + std::to_string(samples) + " samples of a replica";
  for (const int micro_batches : divisors(samples)) {
    if (!is_among(question.micro_batches, micro_batches)) continue;
    shape.micro_batches = micro_batches;
    const Kind& kind = *wanted.front();
    const std::vector<int> chunks = chunks_for(question, kind, shape.stages);
    shape.chunks = chunks.empty() ? std::max(2, kind.chunks) : chunks.front();
    if (chunks.empty() && kind.chunks == 1)
      return std::string(kind.name) + " needs 1 chunk, but --chunks excludes 1";
    if (chunks.empty())
      return std::string(kind.name) + " has " + std::to_string(shape.chunks) +
             (kind.chunks > 0 ? " chunks" : " chunks or more") +
             ", but --chunks excludes this, or there are fewer layers (" +
             std::to_string(question.layers.size()) + ") than parts";
    if (try_to_make({&kind, shape}) != DSC_OK) why = schedule::last_error();
  }
  return why;
}

// Explains why each number of stages failed, so that the user sees what would work.
std::string why_nothing(const Question& question, const std::vector<const Kind*>& wanted) {
  constexpr size_t kMostReasons = 6;
  const std::string devices = std::to_string(question.devices);
  std::string numbers, reasons;
  size_t count = 0;
  for (const int stages : divisors(question.devices)) {
    numbers += (numbers.empty() ? "" : ", ") + std::to_string(stages);
    if (!is_among(question.stages, stages) || count++ >= kMostReasons) continue;
    const int replicas = question.devices / stages;
    reasons +=
        (reasons.empty() ? "" : "; ") + std::to_string(stages) + " x " + std::to_string(replicas) + ": ";
    if (static_cast<size_t>(stages) > question.layers.size())
      reasons += "there are only " + std::to_string(question.layers.size()) + " layers";
    else if (question.batch % replicas != 0)
      reasons += "the number of replicas does not divide the batch of " + std::to_string(question.batch);
    else
      reasons += why_no_schedule(question, {stages, replicas}, wanted);
  }
  if (count == 0)
    return "expected a number of stages that divides " + devices + " devices, one of: " + numbers;
  return "no division of " + devices + " devices into stages x replicas can be used: " + reasons;
}

}  // namespace

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all{{"1f1b", 1},
                                     {"gpipe", 1},
                                     {"interleaved_1f1b", 0},
                                     {"looped_bfs", 0},
                                     {"zb_h1", 1},
                                     {"zb_h2", 1},
                                     {"zb_v", 2, true},
                                     {"v_half", 2, true, true},
                                     {"v_min", 2, true, true},
                                     {"dualpipe_v", 2, true}};
  return all;
}

std::vector<std::string> kind_names() {
  std::vector<std::string> names;
  for (const Kind& kind : kinds()) names.emplace_back(kind.name);
  names.emplace_back(kAuto);
  return names;
}

double layer_us(const Question& question, const Layer& layer, int samples) {
  constexpr int kPasses = 3;
  return samples * (layer.forward_us + layer.backward_input_us + layer.backward_weight_us) +
         kPasses * question.overhead_us;
}

double layer_bytes(const Question& question, const Layer& layer, int samples, double held) {
  return layer.weight_bytes * question.state + layer.activation_bytes * samples * held;
}

double Held::of_part(const Shape& shape, int part) const {
  const int turn = part / shape.stages, index = part % shape.stages;
  const int stage = is_zigzag && turn % 2 == 1 ? shape.stages - 1 - index : index;
  return static_cast<double>(of_stage[static_cast<size_t>(stage)]) / shape.chunks;
}

Candidates candidates(const Question& question) {
  const std::vector<const Kind*> wanted = wanted_kinds(question);
  Candidates found;
  for (const int stages : divisors(question.devices)) {
    const int replicas = question.devices / stages;
    if (static_cast<size_t>(stages) > question.layers.size() || !is_among(question.stages, stages)) continue;
    if (question.batch % replicas == 0) add_candidates(question, {stages, replicas}, wanted, found);
  }
  if (!found.all.empty()) return found;
  throw std::invalid_argument("no candidate to compare: " + why_nothing(question, wanted));
}

Placement placement_of(const schedule::Handle& schedule) {
  return schedule::describe(schedule).placement == DSC_PIPE_PLACEMENT_ZIGZAG ? Placement::kZigzag
                                                                             : Placement::kLoop;
}

bool has_ties(const Question& question) {
  return std::any_of(question.layers.begin(), question.layers.end(),
                     [](const Layer& layer) { return !layer.tied.empty(); });
}

schedule::Costs costs_of(const Question& question, const Shape& shape, const Boundaries& boundaries,
                         Placement placement) {
  schedule::Costs costs;
  Holders holders;
  for (auto* list : {&costs.forward, &costs.backward_input, &costs.backward_weight, &costs.message_bytes,
                     &costs.activation_bytes, &costs.static_bytes, &costs.gradient_bytes})
    list->clear();
  for (size_t part = 0; part + 1 < boundaries.size(); ++part) {
    const size_t first = boundaries[part], end = boundaries[part + 1];
    const double fixed = question.overhead_us * static_cast<double>(end - first);
    const auto sum = [&](double Layer::*value) { return sum_of(question, value, first, end); };
    costs.forward.push_back(fixed + shape.samples * sum(&Layer::forward_us));
    costs.backward_input.push_back(fixed + shape.samples * sum(&Layer::backward_input_us));
    costs.backward_weight.push_back(fixed + shape.samples * sum(&Layer::backward_weight_us));
    costs.message_bytes.push_back(shape.samples * question.layers[end - 1].output_bytes);
    costs.activation_bytes.push_back(shape.samples * sum(&Layer::activation_bytes));
    const double weights =
        weights_of(question, first, end, holder_of(shape, static_cast<int>(part), placement), holders);
    costs.static_bytes.push_back(question.state * weights);
    costs.gradient_bytes.push_back(shape.replicas > 1 ? weights : 0);
  }
  costs.overlap = question.overlap;
  const Link message = question.network.message(), reduction = question.network.reduction(shape.replicas);
  costs.latency = message.latency_us;
  costs.bytes_per_time = message.bytes_per_us;
  costs.bucket_bytes = question.bucket_bytes;
  costs.reduce_latency = reduction.latency_us;
  costs.reduce_bytes_per_time = reduction.bytes_per_us;
  costs.after = tied_us(question, shape, holders);
  return costs;
}

Boundaries by_time(const Question& question, const Shape& shape) {
  return cut(times_of(question, shape.samples), shape.parts(), nullptr);
}

Boundaries within_memory(const Question& question, const Shape& shape, const Held& held) {
  const double most = most_held(shape, held);
  std::vector<uint64_t> bytes, limits;
  for (const Layer& layer : question.layers) {
    const double needed = std::ceil(layer_bytes(question, layer, shape.samples, most));
    if (needed >= 0x1p62) return {};
    bytes.push_back(static_cast<uint64_t>(needed));
  }
  const double n_layers = static_cast<double>(question.layers.size());
  const bool differ = n_layers * n_layers * shape.parts() <= kMostSteps;
  for (int part = 0; part < (differ ? shape.parts() : 1); ++part) {
    const double limit = limit_of(question, shape, most, differ ? held.of_part(shape, part) : most);
    limits.push_back(static_cast<uint64_t>(std::min(limit, 0x1p62)));
  }
  dsc_pipe_partition_options_t options;
  schedule::expect_ok(dsc_pipe_partition_options_init(&options, sizeof options));
  options.layer_bytes = bytes.data();
  options.part_limits = limits.data();
  options.n_part_limits = limits.size();
  return cut(times_of(question, shape.samples), shape.parts(), &options);
}

double most_samples_held(const Shape& shape, const Held& held) {
  return most_held(shape, held) * shape.samples;
}

Boundaries by_memory(const Question& question, const Shape& shape, double samples_held) {
  std::vector<double> weights;
  for (const Layer& layer : question.layers) weights.push_back(layer_bytes(question, layer, 1, samples_held));
  return cut(weights, shape.parts(), nullptr);
}

// A lower bound: all stages together hold all layers, and possibly only one copy of tied weights. Without
// chunks, each stage also holds activations of all its layers.
double least_peak(const Question& question, const Shape& shape, const Held& held) {
  const auto fewest = static_cast<double>(*std::min_element(held.of_stage.begin(), held.of_stage.end()));
  Holders holders;
  double sum = question.state * weights_of(question, 0, question.layers.size(), 0, holders);
  for (const Layer& layer : question.layers)
    sum += shape.chunks == 1 ? layer.activation_bytes * shape.samples * fewest : 0;
  return sum / shape.stages;
}

}  // namespace dscctl::plan
