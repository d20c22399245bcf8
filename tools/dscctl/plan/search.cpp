#include "dscctl/plan/search.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "dscctl/plan/cuts.hpp"

namespace dscctl::plan {
namespace {

using schedule::Handle;
using schedule::Priced;

constexpr double kMostOperations = 3e8;  // limit of operations that are simulated in total
constexpr double kMostSearched =
    6000;  // orders are searched only for shapes of at most this number of operations
constexpr size_t kSearches = 3;
constexpr double kMostImproved = 8e7;  // limit of operations that are simulated to find better cuts
constexpr size_t kTries = 1000;        // cuts that are tried for a candidate
constexpr size_t kFewTries = 100;      // the same, for a candidate that is not among the best
constexpr size_t kBest = 20;
constexpr size_t kLeast = 12;  // candidates whose memory is reduced if none fits
constexpr int kHalvings = 6;
constexpr double kSame = 1e-7;

double operations_of(const Shape& shape) { return 3.0 * shape.parts() * shape.micro_batches; }

// Returns the cost of making a schedule, as the number of operations that could be simulated in that time.
// For example, v_half with 720 stages and 1440 micro-batches took 13.8 s.
double making(const Candidate& one) { return one.kind->is_listed ? 25 * operations_of(one.shape) : 0; }

// The faster row is better. If the times differ only by rounding, the row that needs less memory is better,
// and then the row with fewer stages, chunks and micro-batches.
bool is_better(const Row& a, const Row& b) {
  const auto key = [](const Row& row) {
    return std::make_tuple(static_cast<float>(row.step_us), row.peak_bytes, row.shape.stages,
                           row.shape.chunks, row.shape.micro_batches);
  };
  return key(a) < key(b);
}

bool is_near(double a, double b, double part) { return std::abs(a - b) <= part * std::max(a, b); }

// True if `row` has the same schedule and the same number of stages as `than`, but other chunks or
// micro-batches, and if the table would show neither a shorter time nor less memory for it.
bool is_no_better(const Row& row, const Row& than) {
  return row.kind == than.kind && row.shape.stages == than.shape.stages &&
         is_near(row.step_us, than.step_us, kAsFast) && row.peak_bytes >= than.peak_bytes * (1 - kAsFast);
}

// True if `row` has another schedule than `as`, but the same time, memory and idle share.
bool is_as_good(const Row& row, const Row& as) {
  return row.kind != as.kind && row.shape == as.shape && is_near(row.step_us, as.step_us, kSame) &&
         row.peak_bytes == as.peak_bytes && std::abs(row.idle - as.idle) <= kSame;
}

dsc_pipe_schedule_options_t options_of(const char* kind, const Shape& shape) {
  dsc_pipe_schedule_options_t options = schedule::whole_pipeline();
  options.name = kind;
  options.stages = shape.stages;
  options.micro_batches = shape.micro_batches;
  options.chunks = shape.chunks;
  return options;
}

// Simulates a schedule, and adds the time that follows its last operation.
Priced priced_of(const Handle& schedule, schedule::Costs costs) {
  Priced priced = schedule::simulate(schedule, costs.as_c());
  priced.makespan += costs.after;
  return priced;
}

Row row_of(const std::string& kind, const Shape& shape, const Boundaries& boundaries, const Handle& schedule,
           const Priced& priced) {
  Row row;
  row.placement = placement_of(schedule);
  row.kind = kind;
  row.shape = shape;
  row.boundaries = boundaries;
  row.step_us = priced.makespan;
  row.idle = schedule::idle_part(priced);
  row.fullest = schedule::fullest_stage(priced);
  row.peak_bytes = row.least_bytes = priced.stages[row.fullest].peak_bytes;
  row.least_cut = boundaries;
  for (const auto& stage : priced.stages) row.busy_us = std::max(row.busy_us, stage.busy);
  return row;
}

Trial trial_of(const Priced& priced) {
  Trial trial{.step_us = priced.makespan};
  for (const auto& stage : priced.stages) {
    trial.peak_bytes = std::max(trial.peak_bytes, stage.peak_bytes);
    trial.uneven_time += stage.busy * stage.busy;
    trial.uneven_bytes += stage.peak_bytes * stage.peak_bytes;
  }
  return trial;
}

class Search {
 public:
  Search(const Question& question, const OnProgress& tell) : question_(question), tell_(tell) {}

  Answer run() {
    Candidates found = candidates(question_);
    answer_.counts.too_large = found.too_large;
    for (const Candidate& one : found.all) {
      answer_.uses_messages = answer_.uses_messages || one.shape.stages > 1;
      answer_.uses_reductions =
          answer_.uses_reductions || one.shape.replicas > 1 || (one.shape.stages > 1 && has_ties(question_));
    }
    expect_known(question_.network, answer_.uses_messages, answer_.uses_reductions);
    price_all(std::move(found.all));
    improve_all();
    if (question_.kinds.empty() || is_wanted(kAuto)) search_orders();
    if (is_only_auto()) std::erase_if(rows_, [](const Row& row) { return row.kind != kAuto; });
    choose();
    return std::move(answer_);
  }

 private:
  bool is_wanted(const char* kind) const {
    return std::find(question_.kinds.begin(), question_.kinds.end(), kind) != question_.kinds.end();
  }
  bool is_only_auto() const { return is_wanted(kAuto) && question_.kinds.size() == 1; }
  bool fits(const Row& row) const {
    return question_.memory_bytes <= 0 || row.peak_bytes <= question_.memory_bytes;
  }

  // Returns a lower bound for any order and any partition of these layers: the busiest stage has at least one
  // layer, and all stages together have all layers.
  double bound_us(const Candidate& one) {
    const Shape& shape = one.shape;
    double sum = 0, most = 0;
    for (const Layer& layer : question_.layers) {
      const double us = layer_us(question_, layer, shape.samples);
      sum += us;
      most = std::max(most, us);
    }
    double busiest = std::max(most, sum / shape.stages);
    if (shape.chunks == 1) busiest = std::max(busiest, heaviest_us(shape));
    const bool has_pairs = std::string(one.kind->name) == "dualpipe_v";
    return busiest * shape.micro_batches * (1 - kSame) * (has_pairs ? std::min(1.0, question_.overlap) : 1);
  }

  // Without overhead, the times for different numbers of samples are proportional, so the partition is the
  // same.
  const Boundaries& partition(Shape shape) {
    if (question_.overhead_us == 0) shape.samples = 1;
    Boundaries& known = partitions_[{shape.parts(), shape.samples}];
    if (known.empty()) known = by_time(question_, shape);
    return known;
  }

  const Boundaries& partition_by_memory(const Shape& shape, const Held& held) {
    const double samples = most_samples_held(shape, held);
    Boundaries& known = memory_partitions_[{shape.parts(), samples}];
    if (known.empty()) known = by_memory(question_, shape, samples);
    return known;
  }

  double heaviest_us(const Shape& shape) {
    const Boundaries& cut = partition(shape);
    double heaviest = 0;
    for (size_t part = 0; part + 1 < cut.size(); ++part) {
      double us = 0;
      for (size_t i = cut[part]; i < cut[part + 1]; ++i)
        us += layer_us(question_, question_.layers[i], shape.samples);
      heaviest = std::max(heaviest, us);
    }
    return heaviest;
  }

  // Simulates the most promising candidates first. It stops when the table cannot change any more.
  void price_all(std::vector<Candidate> all) {
    std::vector<std::pair<double, const Candidate*>> order;
    for (const Candidate& one : all) order.emplace_back(bound_us(one), &one);
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    answer_.counts.all = all.size();
    for (size_t i = 0; i < order.size(); ++i) {
      const auto& [bound, one] = order[i];
      if (bound > worst_shown_us()) {
        answer_.counts.hopeless = order.size() - i;
        break;
      }
      if (operations_ + making(*one) + operations_of(one->shape) > kMostOperations) {
        ++answer_.counts.left;
        continue;
      }
      tell_(i, order.size(), best());
      rows_.push_back(price(*one));
      note(rows_.back());
      ++answer_.counts.simulated;
    }
  }

  // Returns the time of the last row of the table; infinite while the table is not full.
  double worst_shown_us() const { return shown_us_.size() < question_.top ? HUGE_VAL : shown_us_.back(); }

  void note(const Row& row) {
    if (!fits(row)) return;
    if (best_us_ > row.step_us) {
      best_us_ = row.step_us;
      best_ = rows_.size() - 1;
    }
    const bool is_known = std::any_of(shown_.begin(), shown_.end(), [&](size_t i) {
      return is_no_better(row, rows_[i]) || is_no_better(rows_[i], row) || is_as_good(row, rows_[i]);
    });
    if (is_known) return;
    shown_.push_back(rows_.size() - 1);
    shown_us_.insert(std::upper_bound(shown_us_.begin(), shown_us_.end(), row.step_us), row.step_us);
    if (shown_us_.size() > question_.top) shown_us_.pop_back();
  }
  const Row* best() const { return shown_us_.empty() ? nullptr : &rows_[best_]; }

  Row try_partition(const Candidate& one, const Handle& handle, const Boundaries& boundaries, Held* held) {
    const Priced priced = priced_of(handle, costs_of(question_, one.shape, boundaries, placement_of(handle)));
    operations_ += operations_of(one.shape);
    if (held != nullptr)
      for (const auto& stage : priced.stages) held->of_stage.push_back(stage.peak_activations);
    return row_of(one.kind->name, one.shape, boundaries, handle, priced);
  }

  // Uses the fastest partition. If that needs too much memory, uses a partition that fits, if one is found.
  Row price(const Candidate& one) {
    const Handle handle = schedule::make(options_of(one.kind->name, one.shape));
    operations_ += making(one);
    Held held{{}, one.kind->is_zigzag};
    Row row = try_partition(one, handle, partition(one.shape), &held);
    if (fits(row)) return row;
    const double least = least_peak(question_, one.shape, held) * (1 - kSame);
    // This candidate cannot fit, and cannot be the one that needs the least memory.
    if (least > question_.memory_bytes && least > least_bytes_) return row;
    const auto cut = [&](int how) {
      if (how == 0 && least > question_.memory_bytes) return Boundaries{};
      return how == 0   ? within_memory(question_, one.shape, held)
             : how == 1 ? by_held_memory(question_, one.shape, held)
                        : partition_by_memory(one.shape, held);
    };
    for (int how = 0; how < 3; ++how) {
      const Boundaries boundaries = cut(how);
      if (boundaries.empty()) continue;
      const Row other = try_partition(one, handle, boundaries, nullptr);
      if (fits(other)) {
        faster_.push_back(row);
        return other;
      }
      note_least(row, other);
    }
    least_bytes_ = std::min(least_bytes_, row.least_bytes);
    return row;
  }

  static void note_least(Row& row, const Row& other) {
    if (other.peak_bytes >= row.least_bytes) return;
    row.least_bytes = other.peak_bytes;
    row.least_cut = other.boundaries;
  }

  // Searches better cuts for rows that may enter the table, best first, and then for rows that do not fit.
  // Then searches longer for the best rows.
  void improve_all() {
    improve_some(rows_.size(), kLeast, kFewTries);
    improve_some(kBest, kBest, kTries);
  }

  void improve_some(size_t most_fitting, size_t most_others, size_t tries) {
    std::vector<Row*> order;
    for (Row& row : rows_) order.push_back(&row);
    std::stable_sort(order.begin(), order.end(), [&](const Row* a, const Row* b) {
      if (fits(*a) != fits(*b)) return fits(*a);
      return fits(*a) ? is_better(*a, *b) : a->least_bytes < b->least_bytes;
    });
    size_t fitting = 0, others = 0;
    for (Row* row : order)
      if (row->shape.stages > 1 && (fits(*row) ? fitting++ < most_fitting : others++ < most_others))
        improve(*row, tries);
  }

  // Returns the row with the best cut that is found from `starts`, for the same schedule and shape.
  Row improved_row(const Row& row, const Handle& handle, const std::vector<Boundaries>& starts,
                   size_t most_tries) {
    const double one = operations_of(row.shape);
    const auto simulated = [&](const Boundaries& cut) {
      improving_ += one;
      return priced_of(handle, costs_of(question_, row.shape, cut, placement_of(handle)));
    };
    const auto tries = static_cast<size_t>((kMostImproved - improving_) / one);
    const Boundaries cut = improved(
        starts, [&](const Boundaries& it) { return trial_of(simulated(it)); }, question_.memory_bytes,
        std::min(most_tries, tries));
    return row_of(row.kind, row.shape, cut, handle, simulated(cut));
  }

  void improve(Row& row, size_t tries) {
    constexpr double kLeastTries = 4;
    if (improving_ + kLeastTries * operations_of(row.shape) > kMostImproved) return;
    if (tries == kFewTries) ++answer_.counts.improved;
    const Handle handle = schedule::make(options_of(row.kind.c_str(), row.shape));
    schedule::Costs costs = costs_of(question_, row.shape, row.boundaries, row.placement);
    std::vector<Boundaries> starts{row.boundaries, row.least_cut, evenly(question_, row.shape),
                                   by_held_memory(question_, row.shape, held_of(row, handle, costs))};
    keep_different(starts);
    take(row, improved_row(row, handle, starts, tries));
  }

  static Held held_of(const Row& row, const Handle& handle, schedule::Costs& costs) {
    Held held;
    for (const Kind& kind : kinds())
      held.is_zigzag = held.is_zigzag || (kind.name == row.kind && kind.is_zigzag);
    for (const auto& stage : schedule::simulate(handle, costs.as_c()).stages)
      held.of_stage.push_back(stage.peak_activations);
    return held;
  }

  static void keep_different(std::vector<Boundaries>& cuts) {
    std::vector<Boundaries> kept;
    for (const Boundaries& cut : cuts)
      if (!cut.empty() && std::find(kept.begin(), kept.end(), cut) == kept.end()) kept.push_back(cut);
    cuts = std::move(kept);
  }

  void take(Row& row, Row other) {
    if (!fits(other)) return note_least(row, other);
    if (fits(row) && !is_better(other, row)) return;
    if (!fits(row)) faster_.push_back(row);
    row = std::move(other);
  }

  // Searches orders for the best shapes. If no row fits, searches for the shapes that need the least memory.
  void search_orders() {
    std::vector<const Row*> order;
    for (const Row& row : rows_)
      if (row.shape.stages > 1 && operations_of(row.shape) <= kMostSearched) order.push_back(&row);
    std::stable_sort(order.begin(), order.end(), [&](const Row* a, const Row* b) {
      if (fits(*a) != fits(*b)) return fits(*a);
      return fits(*a) ? is_better(*a, *b) : a->least_bytes < b->least_bytes;
    });
    std::vector<Row> best;  // the best row of each shape
    for (const Row* row : order) {
      const bool is_known =
          std::any_of(best.begin(), best.end(), [&](const Row& one) { return one.shape == row->shape; });
      if (!is_known && best.size() < kSearches) best.push_back(*row);
    }
    for (const Row& row : best) search_order(row);
    const bool any_fits = std::any_of(rows_.begin(), rows_.end(), [&](const Row& row) { return fits(row); });
    for (const Row& row : best)
      if (!any_fits) search_least(row);
  }

  std::optional<Row> order_for(const Shape& shape, const Boundaries& cut, double bytes,
                               Handle* order = nullptr) const {
    schedule::Costs costs = costs_of(question_, shape, cut, Placement::kUnknown);
    const dsc_pipe_costs_t c_costs = costs.as_c();
    dsc_pipe_search_options_t limits = schedule::no_limits();
    limits.bytes = bytes;
    dsc_pipe_search_result_t result{};
    result.struct_size = sizeof result;
    dsc_pipe_schedule_options_t options = options_of(kAuto, shape);
    dsc_pipe_schedule_t* made = nullptr;
    if (dsc_pipe_search(&options, &c_costs, &limits, &result, &made) != DSC_OK) return {};
    Handle handle(made);
    Row row = row_of(kAuto, shape, cut, handle,
                     priced_of(handle, costs_of(question_, shape, cut, placement_of(handle))));
    row.origin_bound_us = result.bound;
    if (order != nullptr) *order = std::move(handle);
    return row;
  }

  // Returns the cuts for which an order is searched. For two of them, all stages hold the same number of
  // activations: one activation, and the largest number that fits into the memory.
  std::vector<Boundaries> cuts_of(const Row& named) const {
    const Shape& shape = named.shape;
    std::vector<Boundaries> cuts{named.boundaries, named.least_cut, evenly(question_, shape)};
    const int64_t most = std::min<int64_t>(int64_t{shape.chunks} * shape.micro_batches, 2 * shape.parts());
    Boundaries roomy;
    for (int64_t each = 1; each <= most && question_.memory_bytes > 0; ++each) {
      const Held held{std::vector<int64_t>(static_cast<size_t>(shape.stages), each), false};
      Boundaries cut = by_held_memory(question_, shape, held);
      if (cut.empty() || (each > 1 && bytes_at(shape, cut, each) > question_.memory_bytes)) break;
      if (each == 1) cuts.push_back(cut);
      roomy = std::move(cut);
    }
    cuts.push_back(roomy);
    keep_different(cuts);
    return cuts;
  }

  // Returns the bytes of the fullest stage if every stage holds `each` activations.
  double bytes_at(const Shape& shape, const Boundaries& cut, int64_t each) const {
    const double held = static_cast<double>(each) / shape.chunks;
    double most = 0;
    for (size_t part = 0; part + 1 < cut.size(); ++part) {
      double bytes = 0;
      for (size_t i = cut[part]; i < cut[part + 1]; ++i)
        bytes += layer_bytes(question_, question_.layers[i], shape.samples, held);
      most = std::max(most, bytes * shape.chunks);
    }
    return most;
  }

  // Adds the order that was found if it is better than the named schedule of the same shape.
  void search_order(const Row& named) {
    ++answer_.counts.searched;
    std::optional<Row> best;
    Handle order;
    const auto consider = [&](const Boundaries& cut) {
      Handle found;
      std::optional<Row> row = order_for(named.shape, cut, question_.memory_bytes, &found);
      if (!row || (best && !is_better(*row, *best))) return;
      best = std::move(row);
      order = std::move(found);
    };
    for (const Boundaries& cut : cuts_of(named)) consider(cut);
    if (!best) return;
    if (named.shape.parts() > 1) consider(improved_row(*best, order, {best->boundaries}, kTries).boundaries);
    const bool is_new = !fits(named) || best->step_us < named.step_us * (1 - kSame);
    if (is_new || is_only_auto()) rows_.push_back(std::move(*best));
  }

  // Finds by bisection the least memory for which an order is found.
  void search_least(const Row& named) {
    for (const Boundaries& cut : cuts_of(named)) {
      double too_little = question_.memory_bytes, enough = named.least_bytes;
      for (int i = 0; i < kHalvings && too_little < enough; ++i) {
        const double bytes = i == 0 ? enough : (too_little + enough) / 2;
        if (const std::optional<Row> row = order_for(named.shape, cut, bytes)) {
          enough = std::min(bytes, row->peak_bytes);
          rows_.push_back(*row);
        } else if (i == 0) {
          break;
        } else {
          too_little = bytes;
        }
      }
    }
  }

  // Of several rows that are the same answer, shows only the first one, which is the best.
  void show(const Row& row) {
    for (Row& shown : answer_.rows) {
      const bool is_other = is_as_good(row, shown);
      if (!is_other && !is_no_better(row, shown)) continue;
      if (is_other) shown.as_good.push_back(row.kind);
      ++answer_.counts.repeated;
      return;
    }
    if (answer_.rows.size() < question_.top) answer_.rows.push_back(row);
  }

  void choose() {
    std::stable_sort(rows_.begin(), rows_.end(), is_better);
    for (const Row& row : rows_)
      if (fits(row)) show(row);
    if (answer_.rows.empty()) {
      for (const Row& row : rows_)
        if (!answer_.least || row.least_bytes < answer_.least->least_bytes) answer_.least = row;
      return;
    }
    for (const Row& row : rows_)
      if (!fits(row)) faster_.push_back(row);
    for (const Row& row : faster_) {
      const bool is_faster = row.step_us < answer_.rows.front().step_us * (1 - kSame);
      if (is_faster && (!answer_.faster || is_better(row, *answer_.faster))) answer_.faster = row;
    }
    for (Row& row : answer_.rows) explain(row);
    if (answer_.faster) explain(*answer_.faster);
  }

  // Sets how much time the network adds, by a simulation in which the network takes no time.
  void explain(Row& row) const {
    schedule::Costs costs = costs_of(question_, row.shape, row.boundaries, row.placement);
    costs.latency = costs.bytes_per_time = costs.reduce_latency = costs.reduce_bytes_per_time = costs.after =
        0;
    const Priced priced = priced_of(schedule_of(question_, row), costs);
    row.network_us = row.step_us - priced.makespan;
  }

  const Question& question_;
  const OnProgress& tell_;
  Answer answer_;
  std::vector<Row> rows_;
  std::vector<Row> faster_;       // rows that do not fit, except with another partition
  std::vector<double> shown_us_;  // times of the rows that the table would show now
  std::vector<size_t> shown_;     // indexes of rows_: different answers that fit
  size_t best_ = 0;               // index of rows_
  double best_us_ = HUGE_VAL;
  std::map<std::pair<int, int>, Boundaries> partitions_;            // by number of parts and samples
  std::map<std::pair<int, double>, Boundaries> memory_partitions_;  // by number of parts and samples held
  double least_bytes_ = HUGE_VAL;                                   // least memory of rows that did not fit
  double operations_ = 0;                                           // number of simulated operations
  double improving_ = 0;  // operations simulated to find better cuts
};

}  // namespace

Answer find_plans(const Question& question, const OnProgress& tell) { return Search(question, tell).run(); }

Handle schedule_of(const Question& question, const Row& row) {
  dsc_pipe_schedule_options_t options = options_of(row.kind.c_str(), row.shape);
  if (row.kind != kAuto) return schedule::make(options);
  schedule::Costs costs = costs_of(question, row.shape, row.boundaries, Placement::kUnknown);
  dsc_pipe_search_options_t limits = schedule::no_limits();
  limits.bytes = question.memory_bytes;
  return schedule::find(options, costs.as_c(), limits).schedule;
}

}  // namespace dscctl::plan
