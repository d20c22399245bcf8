#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>

#include "dscctl/bench/exit_codes.hpp"
#include "dscctl/bench/measure.hpp"

namespace dscctl::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kWarmUps = 3;
constexpr int kFewest = 8;
constexpr int kMost = 2000;
constexpr size_t kCountedCalls = 100;
constexpr double kSettleMs = 30;
constexpr double kSettleCaseMs = 5;
constexpr size_t kPage = 4096;

struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void ok(dsc_result_t result) {
  if (result == DSC_OK) return;
  const std::string text = std::string(dsc_result_name(result)) + ": " + dsc_last_error_message();
  if (result == DSC_ERR_CONFIG) throw Refused(text);
  throw std::runtime_error(text);
}

double now_us() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(time).count();
}

// A buffer of zeros: their sums stay zero, even if they are summed in place many times.
class Buffer {
 public:
  Buffer(const Rank& self, size_t elements, bool shared) : shared_(shared) {
    const size_t bytes = (elements * sizeof(float) + kPage - 1) / kPage * kPage;
    void* memory = nullptr;
    if (shared)
      ok(dsc_mem_alloc(self.world, bytes, DSC_MEMORY_KIND_HOST, &memory));
    else if ((memory = std::aligned_alloc(kPage, bytes)) == nullptr)
      throw std::runtime_error("no memory for a buffer of " + size_text(bytes));
    data_ = static_cast<float*>(memory);
    std::fill_n(data_, elements, 0.0f);
  }
  ~Buffer() {
    if (shared_)
      dsc_mem_free(data_);
    else
      std::free(data_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  float* data() const { return data_; }

 private:
  bool shared_;
  float* data_ = nullptr;
};

// Returns how often this thread slept, yielded or lost its processor.
long switches_so_far() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw + usage.ru_nivcsw;
}

// Times one call. A barrier first lets all ranks start at nearly the same time.
double time_once(const Rank& self, const Case& one, float* in, float* out, size_t count) {
  ok(dsc_barrier(self.world, nullptr, nullptr));
  const double start = now_us();
  ok(one.operation->call(self, in, out, count));
  const double elapsed = now_us() - start;
  return one.operation->in_pairs ? elapsed / 2 : elapsed;
}

// Ranks that have just started, or have slept, may share a processor while another one is idle. The kernel
// needs some time to move them apart.
void settle(const Rank& self, double ms) {
  constexpr int kBarriers = 10;
  const double end_us = now_us() + ms * 1e3;
  for (int32_t more = 1; more != 0;) {
    for (int i = 0; i < kBarriers; ++i) ok(dsc_barrier(self.world, nullptr, nullptr));
    more = now_us() < end_us;
    ok(dsc_broadcast(self.world, &more, &more, 1, DSC_DTYPE_I32, 0, nullptr, nullptr));
  }
}

// Returns how many repetitions rank 0 has time for.
int agree_on_repetitions(const Rank& self, double warm_up_us, int budget_ms) {
  const double fit = budget_ms * 1e3 * kWarmUps / std::max(warm_up_us, 1e-3);
  auto repetitions = static_cast<int32_t>(std::clamp<double>(fit, kFewest, kMost));
  ok(dsc_broadcast(self.world, &repetitions, &repetitions, 1, DSC_DTYPE_I32, 0, nullptr, nullptr));
  return repetitions;
}

double slowest_median(const Rank& self, std::vector<double>& times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  double median = *middle;
  ok(dsc_all_reduce(self.world, &median, &median, 1, DSC_DTYPE_F64, DSC_OP_MAX, nullptr, nullptr));
  return median;
}

// Returns the average number of context switches of a rank per operation. It is measured separately from the
// timed calls, because asking the kernel would disturb them.
double count_switches(const Rank& self, const Case& one, float* in, float* out, size_t count, size_t calls) {
  ok(dsc_barrier(self.world, nullptr, nullptr));
  const long before = switches_so_far();
  for (size_t i = 0; i < calls; ++i) ok(one.operation->call(self, in, out, count));
  const auto operations = static_cast<double>(calls * (one.operation->in_pairs ? 2 : 1));
  double switches = static_cast<double>(switches_so_far() - before) / operations / self.size;
  ok(dsc_all_reduce(self.world, &switches, &switches, 1, DSC_DTYPE_F64, DSC_OP_SUM, nullptr, nullptr));
  return switches;
}

Json read_trace(const Rank& self) {
  size_t bytes = 0;
  ok(dsc_trace_json(self.world, nullptr, 0, &bytes));
  std::string text;
  do {
    text.assign(bytes, '\0');
    ok(dsc_trace_json(self.world, text.data(), text.size(), &bytes));
  } while (bytes > text.size());
  return Json::parse(text.c_str());
}

// Returns the algorithm of the latest such operation, from the flight recorder.
std::string last_algorithm(const Rank& self, const Operation& operation) {
  const Json trace = read_trace(self);
  const Json& entries = trace.at("entries");
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry)
    if (entry->at("profiling_name") == operation.recorded && entry->at("algorithm").is_string())
      return entry->at("algorithm");
  return "-";
}

Row measure_case(const Rank& self, const Case& one, int budget_ms, bool explain) {
  const size_t parts = one.operation->in_parts ? static_cast<size_t>(self.size) : 1;
  const size_t count = std::max<size_t>(one.operation->moves, one.bytes / sizeof(float) / parts);
  const Buffer in(self, count * parts, one.shared), out(self, count * parts, one.shared);
  const auto time = [&] { return time_once(self, one, in.data(), out.data(), count); };
  settle(self, kSettleCaseMs);
  double warm_up_us = 0;
  for (int i = 0; i < kWarmUps; ++i) warm_up_us += time();
  std::vector<double> times(static_cast<size_t>(agree_on_repetitions(self, warm_up_us, budget_ms)));
  std::generate(times.begin(), times.end(), time);
  Row row{one, 0, explain ? last_algorithm(self, *one.operation) : "", 0};
  row.median_us = slowest_median(self, times);
  if (explain)
    row.switches =
        count_switches(self, one, in.data(), out.data(), count, std::min(times.size(), kCountedCalls));
  return row;
}

void say(const Json& line) {
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

void say_facts(const Rank& self) {
  char tuning[4096];
  size_t bytes = 0;
  ok(dsc_comm_tuning(self.world, tuning, sizeof tuning, &bytes));
  say({{"tuning", tuning}, {"algorithms", read_trace(self).at("algorithms")}});
}

void measure_all(const std::vector<Case>& cases, int budget_ms, bool explain) {
  Rank self;
  ok(dsc_init_distributed(nullptr, &self.world));
  ok(dsc_comm_rank(self.world, &self.rank));
  ok(dsc_comm_size(self.world, &self.size));
  if (self.rank == 0) say_facts(self);
  if (!cases.empty()) settle(self, kSettleMs);
  for (size_t i = 0; i < cases.size(); ++i) {
    const Row row = measure_case(self, cases[i], budget_ms, explain);
    if (self.rank != 0) continue;
    say({{"case", i},
         {"median_us", row.median_us},
         {"algorithm", row.algorithm},
         {"switches", row.switches}});
  }
  ok(dsc_finalize());
}

}  // namespace

int run_rank(const std::string& cases, int budget_ms, bool explain) {
  int code = kFailed;
  try {
    measure_all(parse_cases(cases), budget_ms, explain);
    return kFine;
  } catch (const Refused& refused) {
    std::fprintf(stderr, "%s\n", refused.what());
    code = kRefused;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  std::fflush(stderr);
  std::_Exit(code);  // the other ranks notice it immediately
}

}  // namespace dscctl::bench
