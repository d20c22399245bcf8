#include "dscctl/bench/tune.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>

#include "common/suggest.hpp"
#include "dscctl/bench/pace.hpp"

namespace dscctl::bench {
namespace {

constexpr int kSurveyRounds = 2;
// The fastest round counts, because other programs can only make it slower.
constexpr int kRounds = 3;
constexpr double kDifference = 1.1;  // a larger ratio of two times is a real difference and not noise
constexpr double kWorthIt = 0.05;
constexpr double kAsGood = 0.02;
constexpr double kCaseBudgets = 2;  // assumed time of the first case, as a multiple of its budget
constexpr size_t kKiB = size_t{1} << 10;
constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kNoLimit = size_t{1} << 62;

// Values that are tried for every setting. The library decides which of them a setting accepts.
constexpr size_t kLadder[] = {0,          4 * kKiB, 16 * kKiB, 64 * kKiB, 128 * kKiB, 256 * kKiB,
                              512 * kKiB, kMiB,     4 * kMiB,  16 * kMiB, 64 * kMiB,  kNoLimit};

std::vector<Case> all_cases(int ranks) {
  std::vector<Case> cases;
  const auto add = [&](const char* name, bool shared, std::initializer_list<size_t> sizes) {
    const Operation& operation = find_operation(name);
    if (operation.in_pairs && ranks % 2 != 0) return;
    for (const size_t bytes : sizes) cases.push_back({&operation, shared, bytes});
  };
  for (const bool shared : {false, true})
    add("all_reduce", shared, {kKiB, 4 * kKiB, 16 * kKiB, 64 * kKiB, 256 * kKiB, kMiB, 4 * kMiB, 32 * kMiB});
  add("all_gather", false, {64 * kKiB, kMiB});
  add("all_to_all", false, {64 * kKiB, kMiB});
  add("send_recv", false, {16 * kKiB, 256 * kKiB, 4 * kMiB});
  return cases;
}

// One combination of settings, and its times: for each case, one time per round.
struct Trial {
  Settings settings;
  std::vector<std::vector<double>> times_us;

  double best(size_t at) const { return *std::min_element(times_us[at].begin(), times_us[at].end()); }
  double noise(size_t at) const {
    return *std::max_element(times_us[at].begin(), times_us[at].end()) / best(at);
  }
};

Settings with(Settings settings, const std::string& key, size_t value) {
  for (auto& [name, present] : settings)
    if (name == key) present = value;
  return settings;
}

void check_keys(const std::vector<std::string>& keys, const Settings& known) {
  std::vector<std::string> names;
  std::string list;
  for (const auto& [name, value] : known) {
    names.push_back(name);
    list += (list.empty() ? "" : ", ") + name;
  }
  for (const std::string& key : keys)
    if (std::find(names.begin(), names.end(), key) == names.end())
      throw std::invalid_argument("unknown setting '" + key + "'" + tools::did_you_mean(key, names) +
                                  " (known settings: " + list + ")");
}

class Tuner {
 public:
  Tuner(int ranks, int budget_ms, const OnProgress& tell)
      : ranks_(ranks),
        budget_ms_(budget_ms),
        tell_(tell),
        cases_(all_cases(ranks)),
        pace_(kCaseBudgets * budget_ms * 1e-3) {}

  Tuned run(const std::vector<std::string>& only) {
    const Settings defaults = look_at("").value().settings;
    check_keys(only, defaults);
    Tuned tuned{defaults, {}};
    for (const auto& [key, value] : defaults)
      if (only.empty() || std::find(only.begin(), only.end(), key) != only.end())
        tuned.details.push_back({key, value, value, 0, {}, {}});
    const size_t settings = tuned.details.size();
    const size_t values = std::size(kLadder) + 1, usual_cases = cases_.size() / 3;
    later_ = amount_of_survey(settings);
    later_ += amount_of_rounds(settings * values, usual_cases, kRounds);
    later_ += {settings * values, 0};
    for (TunedSetting& one : tuned.details) take_values(defaults, one);
    later_ = amount_of_survey(settings);
    for (const TunedSetting& one : tuned.details)
      later_ += amount_of_rounds(one.candidates.size(), usual_cases, kRounds);
    survey(defaults, tuned.details);
    later_ = {};
    for (const TunedSetting& one : tuned.details)
      if (!one.cases.empty()) later_ += amount_of_rounds(one.candidates.size(), one.cases.size(), kRounds);
    for (TunedSetting& one : tuned.details) {
      if (one.cases.empty()) continue;
      choose(tuned.settings, one);
      tuned.settings = with(tuned.settings, one.key, one.fastest);
    }
    return tuned;
  }

 private:
  // Returns the facts that the library reports with this DSC_TUNING; nullopt if it refuses the settings.
  std::optional<Facts> look_at(const std::string& tuning) {
    return timed({ranks_, tuning, {}, budget_ms_, false}, [](const Facts&, const Row&) {});
  }

  std::optional<Facts> timed(const Job& job, const OnRow& on_row) {
    const auto start = std::chrono::steady_clock::now();
    const auto facts = measure(job, on_row);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    pace_.learn({1, job.cases.size()}, took.count());
    later_.starts -= std::min<size_t>(later_.starts, 1);
    later_.cases -= std::min(later_.cases, job.cases.size());
    return facts;
  }
  void tell(const std::string& what) const { tell_(what, pace_.seconds_for(later_)); }

  static Amount amount_of_rounds(size_t trials, size_t cases, size_t rounds) {
    return {rounds * trials, rounds * trials * cases};
  }
  Amount amount_of_survey(size_t settings) const {
    return amount_of_rounds(1 + 2 * settings, cases_.size(), kSurveyRounds);
  }

  void take_values(const Settings& defaults, TunedSetting& one) {
    tell("finding the values that " + one.key + " may have");
    std::vector<size_t> values(std::begin(kLadder), std::end(kLadder));
    values.push_back(one.present);
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    for (const size_t value : values)
      if (look_at(settings_text(with(defaults, one.key, value)))) one.candidates.push_back({value, {}});
  }

  void measure_in_turn(std::vector<Trial>& trials, const std::vector<Case>& cases, int rounds,
                       const std::string& what) {
    for (Trial& trial : trials) trial.times_us.resize(cases.size());
    for (int round = 0; round < rounds; ++round)
      for (size_t i = 0; i < trials.size(); ++i) {
        tell(what + ", round " + std::to_string(round + 1) + " of " + std::to_string(rounds) + ", " +
             std::to_string(i + 1) + " of " + std::to_string(trials.size()));
        size_t at = 0;
        const Job job{ranks_, settings_text(trials[i].settings), cases, budget_ms_, false};
        const auto facts = timed(
            job, [&](const Facts&, const Row& row) { trials[i].times_us[at++].push_back(row.median_us); });
        if (!facts) throw std::runtime_error("refused: DSC_TUNING=" + *job.tuning);
      }
  }

  // Finds, for each setting, the cases in which its smallest and largest values differ from its present
  // value.
  void survey(const Settings& defaults, std::vector<TunedSetting>& details) {
    std::vector<Trial> trials = {{defaults, {}}};
    for (const TunedSetting& one : details)
      for (const size_t value : {one.candidates.front().value, one.candidates.back().value})
        trials.push_back({with(defaults, one.key, value), {}});
    measure_in_turn(trials, cases_, kSurveyRounds, "finding the cases that settings change");
    for (size_t i = 0; i < details.size(); ++i)
      for (size_t at = 0; at < cases_.size(); ++at)
        if (differ({&trials[0], &trials[1 + 2 * i], &trials[2 + 2 * i]}, at))
          details[i].cases.push_back(cases_[at]);
  }

  static bool differ(std::initializer_list<const Trial*> trials, size_t at) {
    double least = HUGE_VAL, most = 0, noise = 1;
    for (const Trial* trial : trials) {
      least = std::min(least, trial->best(at));
      most = std::max(most, trial->best(at));
      noise = std::max(noise, trial->noise(at));
    }
    return most / least > kDifference * noise;
  }

  void choose(const Settings& settings, TunedSetting& one) {
    std::vector<Trial> trials;
    for (const Candidate& candidate : one.candidates)
      trials.push_back({with(settings, one.key, candidate.value), {}});
    measure_in_turn(trials, one.cases, kRounds, one.key);
    for (size_t i = 0; i < trials.size(); ++i)
      for (size_t at = 0; at < one.cases.size(); ++at)
        one.candidates[i].best_us.push_back(trials[i].best(at));
    const auto present = std::find_if(one.candidates.begin(), one.candidates.end(),
                                      [&](const Candidate& each) { return each.value == one.present; });
    const Candidate& fastest = nearest_of_the_fastest(one.candidates, present - one.candidates.begin());
    const double gain = 1 - mean_us(fastest) / mean_us(*present);
    if (gain < kWorthIt) return;
    one.gain = gain;
    one.fastest = fastest.value;
  }

  // Of the candidates that are as good as the best one, returns the one that changes the setting least.
  static const Candidate& nearest_of_the_fastest(const std::vector<Candidate>& all, std::ptrdiff_t present) {
    double best_us = HUGE_VAL;
    for (const Candidate& each : all) best_us = std::min(best_us, mean_us(each));
    const auto steps = [&](const Candidate& each) { return std::abs(&each - all.data() - present); };
    const Candidate* nearest = nullptr;
    for (const Candidate& each : all)
      if (mean_us(each) <= best_us * (1 + kAsGood) && (!nearest || steps(each) < steps(*nearest)))
        nearest = &each;
    return *nearest;
  }

  // A geometric mean, so that every case has the same weight.
  static double mean_us(const Candidate& candidate) {
    double sum = 0;
    for (const double us : candidate.best_us) sum += std::log(us);
    return std::exp(sum / static_cast<double>(candidate.best_us.size()));
  }

  const int ranks_;
  const int budget_ms_;
  const OnProgress& tell_;
  const std::vector<Case> cases_;
  Pace pace_;
  Amount later_;  // the work that is still to be measured, as far as it is known
};

}  // namespace

Tuned tune(int ranks, const std::vector<std::string>& only, int budget_ms, const OnProgress& tell) {
  return Tuner(ranks, budget_ms, tell).run(only);
}

}  // namespace dscctl::bench
