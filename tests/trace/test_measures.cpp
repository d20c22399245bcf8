// The arithmetic of summaries, compared with DeepSpeed's.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "dscctl/trace/measures.hpp"
#include "json.hpp"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

namespace {

using support::Json;
using namespace dscctl::trace;

std::string vectors_file;

std::vector<Json> rows_of(const std::string& function) {
  std::ifstream file(vectors_file);
  std::vector<Json> rows;
  for (std::string line; std::getline(file, line);)
    if (Json row = Json::parse(line); row.value("fn", "") == function) rows.push_back(std::move(row));
  assert_true(rows.size() > 10);
  return rows;
}

void assert_near(double found, double expected, const Json& row) {
  if (std::fabs(found - expected) > 1e-14 * std::fabs(expected))
    fail_msg("%s: expected %.17g, got %.17g", row.dump().c_str(), expected, found);
}

void test_bandwidth(void**) {
  for (const Json& row : rows_of("bw")) {
    const Bandwidth found = bandwidth(row["op"].get<std::string>(), row["size"], row["ms"], row["n"]);
    assert_near(found.algorithm_gbps, row["algbw_gbps"], row);
    assert_near(found.bus_gbps, row["busbw_gbps"], row);
  }
}

void test_bandwidth_of_our_names(void**) {
  assert_true(bandwidth("all_to_all", 1000, 1, 4).bus_gbps ==
              bandwidth("all_to_all_single", 1000, 1, 4).bus_gbps);
  assert_true(bandwidth("all_gather_v", 1000, 1, 4).bus_gbps == bandwidth("all_gather", 1000, 1, 4).bus_gbps);
  assert_true(bandwidth("all_reduce", 1000, 0, 4).bus_gbps == 0);
}

void test_sizes(void**) {
  for (const Json& row : rows_of("convert_size"))
    assert_string_equal(size_text(row["bytes"]).c_str(), row["str"].get<std::string>().c_str());
  assert_string_equal(size_text(INT64_MAX).c_str(), "8.0 EB");
}

void test_trimmed_means(void**) {
  for (const Json& row : rows_of("trim_mean"))
    assert_near(trimmed_mean(row["data"].get<std::vector<double>>()), row["mean"], row);
  assert_true(trimmed_mean({3, 1, 2}) == 2);
}

}  // namespace

int main(int, char** argv) {
  vectors_file = argv[1];
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_bandwidth),
      cmocka_unit_test(test_bandwidth_of_our_names),
      cmocka_unit_test(test_sizes),
      cmocka_unit_test(test_trimmed_means),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
