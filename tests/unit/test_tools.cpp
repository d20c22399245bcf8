// What the command-line tools share: numbers with units, and latency and bandwidth from measured times.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/units.hpp"
#include "dscctl/bench/fit.hpp"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

namespace {

using dscctl::bench::Fit;
using dscctl::bench::fit_line;
using dscctl::bench::Measured;

void assert_near(double value, double expected) {
  if (!(std::abs(value - expected) <= 1e-9 * std::max(1.0, std::abs(expected))))
    fail_msg("%.17g, expected %.17g", value, expected);
}

std::vector<Measured> line(double latency_us, double us_per_byte) {
  std::vector<Measured> points;
  for (double bytes = 4; bytes < 1e8; bytes *= 7) points.push_back({bytes, latency_us + us_per_byte * bytes});
  return points;
}

void exact_data_are_found_again(void**) {
  for (const double latency : {0.0, 0.3, 25.0})
    for (const double us_per_byte : {0.0, 4e-5, 1e-3}) {
      if (latency + us_per_byte == 0) continue;
      const Fit fit = fit_line(line(latency, us_per_byte));
      assert_near(fit.latency_us, latency);
      assert_near(fit.us_per_byte, us_per_byte);
      assert_near(fit.largest_error, 0);
    }
}

// Small messages that take longer than large ones would give a negative bandwidth.
void neither_is_below_zero(void**) {
  const Fit falling = fit_line({{4, 10}, {1000, 5}});
  assert_near(falling.us_per_byte, 0);
  assert_near(falling.latency_us, (1.0 / 10 + 1.0 / 5) / (1.0 / 100 + 1.0 / 25));
  const Fit steep = fit_line({{100, 1}, {200, 4}});
  assert_near(steep.latency_us, 0);
  assert_near(steep.us_per_byte, (100.0 + 50) / (10000 + 2500));
  assert_near(steep.largest_error, 1 - 200 * steep.us_per_byte / 4);
}

// Every small change of the result makes the sum of squares larger.
void no_neighbour_is_better(void**) {
  const std::vector<Measured> points{{4, 3}, {1000, 3.4}, {50000, 9}, {1000000, 80}};
  const Fit best = fit_line(points);
  const auto squares = [&](double latency, double per_byte) {
    double sum = 0;
    for (const Measured& it : points) sum += std::pow((latency + per_byte * it.bytes) / it.us - 1, 2);
    return sum;
  };
  for (const double a : {0.999, 1.0, 1.001})
    for (const double b : {0.999, 1.0, 1.001})
      assert_true(squares(best.latency_us, best.us_per_byte) <=
                  squares(best.latency_us * a, best.us_per_byte * b));
}

void one_size_is_latency(void**) {
  const Fit fit = fit_line({{4, 2}, {4, 2}});
  assert_near(fit.latency_us + 4 * fit.us_per_byte, 2);
}

void bytes(void**) {
  const auto is = [](const char* text, double expected) {
    const auto value = tools::parse_bytes(text);
    if (!value) fail_msg("\"%s\" is refused", text);
    assert_near(*value, expected);
  };
  is("0", 0);
  is("65536", 65536);
  is("12B", 12);
  is("1KB", 1000);
  is("1KiB", 1024);
  is("64k", 65536);
  is("1.5GB", 1.5e9);
  is(".5MiB", 524288);
  is("2tib", 2.0 * 1024 * 1024 * 1024 * 1024);
  is("80gb", 80e9);
  for (const char* text :
       {"", "B", "-1", "1 GB", "1XB", "1KiBs", "nan", "inf", "1e400", "0x10", "1,5GB", "KB"})
    if (tools::parse_bytes(text)) fail_msg("\"%s\" is taken", text);
}

void rates(void**) {
  assert_near(*tools::parse_rate("25GB/s"), 25e9);
  assert_near(*tools::parse_rate("400MiB/S"), 400.0 * 1024 * 1024);
  assert_near(*tools::parse_rate("25Gb/s"), 25e9 / 8);
  assert_near(*tools::parse_rate("100Gbit/s"), 100e9 / 8);
  assert_near(*tools::parse_rate("1MiBit/s"), 1024.0 * 1024 / 8);
  assert_near(*tools::parse_rate("25/s"), 25);
  for (const char* text : {"25GB", "25GB/min", "/s", "-1GB/s", "25G/s", "Gbit/s"})
    assert_false(tools::parse_rate(text).has_value());
}

void texts(void**) {
  assert_string_equal(tools::bytes_text(0).c_str(), "0 B");
  assert_string_equal(tools::bytes_text(999).c_str(), "999 B");
  assert_string_equal(tools::bytes_text(61.2e9).c_str(), "61.2 GB");
  assert_string_equal(tools::bytes_text(1234567).c_str(), "1.23 MB");
  assert_string_equal(tools::time_text(12.34).c_str(), "12.3 us");
  assert_string_equal(tools::time_text(812000).c_str(), "812 ms");
  assert_string_equal(tools::time_text(1.534e6).c_str(), "1.53 s");
  for (const double value : {0.1, 1.0 / 3, 1e-300, 12345678.9})
    assert_true(*tools::parse_number(tools::exact_text(value)) == value);
}

void rounded_numbers(void**) {
  constexpr std::pair<double, double> kExpected[] = {{72810.33999999998, 72810.3},
                                                     {0.1 + 0.2, 0.3},
                                                     {1234567.8, 1234568},
                                                     {0, 0},
                                                     {-2.0000004, -2},
                                                     {1e-300, 1e-300}};
  for (const auto& [value, rounded] : kExpected) assert_true(tools::rounded_to(value, 6) == rounded);
}

void wrong_words_name_the_option(void**) {
  const auto said = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "nothing";
  };
  assert_string_equal(said([] { tools::whole_of("--top", "1.5", 1); }).c_str(),
                      "--top: expected a whole number of 1 or more, got '1.5'");
  assert_string_equal(said([] { tools::whole_list_of("--stages", "1,,2", 1); }).c_str(),
                      "--stages: expected a whole number of 1 or more, got ''");
  assert_string_equal(said([] { tools::whole_of("--top", "99999999999", 1); }).c_str(),
                      "--top: expected a whole number of at most 2147483647, got '99999999999'");
  assert_string_equal(
      said([] { tools::bytes_of("--memory", "80G"); }).c_str(),
      "--memory: expected bytes such as 80GB (1000 MB), 25MiB (1024 KiB) or 65536, got '80G'");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {cmocka_unit_test(exact_data_are_found_again),
                              cmocka_unit_test(neither_is_below_zero),
                              cmocka_unit_test(no_neighbour_is_better),
                              cmocka_unit_test(one_size_is_latency),
                              cmocka_unit_test(bytes),
                              cmocka_unit_test(rates),
                              cmocka_unit_test(texts),
                              cmocka_unit_test(rounded_numbers),
                              cmocka_unit_test(wrong_words_name_the_option)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
