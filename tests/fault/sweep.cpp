#include "sweep.hpp"

#include <setjmp.h>

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "crew.hpp"
#include "repetitions.h"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

namespace fault {
namespace {

constexpr int64_t kSayEveryMs = 10'000;

}  // namespace

bool at_length() { return test_repetitions_percent() >= 1000; }

Sweep::Sweep(const char* what, int usual, Bounds bounds)
    : what_(what),
      seed_(static_cast<uint64_t>(setting("DSC_TEST_SEED", now_us() % 1'000'000'000))),
      first_(static_cast<int>(setting("DSC_TEST_TRIAL", -1))),
      said_ms_(now_ms()) {
  const int wanted = test_repetitions(slowdown() == 1 ? usual : usual / 10, bounds.least);
  trials_ = first_ < 0 ? std::min(wanted, bounds.most) : static_cast<int>(setting("DSC_TEST_REPEAT", 1));
  std::printf("%s: DSC_TEST_SEED=%llu\n", what_, static_cast<unsigned long long>(seed_));
  std::fflush(stdout);
}

bool Sweep::next() {
  ++done_;
  trial_ = first_ < 0 ? done_ : first_;
  if (at_length() && now_ms() - said_ms_ > kSayEveryMs) {
    std::printf("%s: %d of %d\n", what_, done_, trials_);
    std::fflush(stdout);
    said_ms_ = now_ms();
  }
  return done_ < trials_;
}

std::mt19937_64 Sweep::random() const {
  std::seed_seq numbers{static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32),
                        static_cast<uint32_t>(trial_)};
  return std::mt19937_64(numbers);
}

std::string Sweep::replay() const {
  return format("DSC_TEST_SEED=%llu DSC_TEST_TRIAL=%d (DSC_TEST_REPEAT=100): ",
                static_cast<unsigned long long>(seed_), trial_);
}

void Sweep::report() {
  std::printf("%s: %d trials\n", what_, done_);
  for (auto& [name, values] : series_) {
    std::sort(values.begin(), values.end());
    const size_t count = values.size();
    std::printf("  %s: p50 %.2f ms, p99 %.2f ms, most %.2f ms\n", name.c_str(),
                static_cast<double>(values[count / 2]) / 1e3,
                static_cast<double>(values[count * 99 / 100]) / 1e3,
                static_cast<double>(values.back()) / 1e3);
  }
  for (const auto& [event, count] : tallies_) std::printf("  %s: %d of %d\n", event.c_str(), count, done_);
  std::fflush(stdout);
}

void Sweep::expect_median(const char* series, int64_t most_us) {
  std::vector<int64_t>& values = series_[series];
  assert_false(values.empty());
  std::sort(values.begin(), values.end());
  const int64_t median_us = values[values.size() / 2];
  if (median_us > most_us)
    fail_msg("%s, %s: the median is %lld us, expected at most %lld us", what_, series,
             static_cast<long long>(median_us), static_cast<long long>(most_us));
}

}  // namespace fault
