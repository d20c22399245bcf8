// The layout of a job says which rank is on which host. Every rank gets it as bytes.
#include <setjmp.h>

#include <cstdarg>
#include <cstddef>
#include <cstdint>

#include "bootstrap/job_layout.hpp"
#include "bootstrap/meeting_wire.hpp"

// Included last because it defines macros such as fail().
extern "C" {
#include <cmocka.h>
}

namespace {

using namespace dsc;

// Returns a layout whose ranks are on the hosts with these names, in this order.
JobLayout layout_with(const std::vector<std::string>& host_names) {
  std::vector<Member> members;
  for (const std::string& host_name : host_names)
    members.push_back(
        {static_cast<int32_t>(members.size()), 0, 1, host_name + "'s identity", "endpoint", host_name});
  return layout_of(members);
}

void expect_same(const JobLayout& layout) {
  const auto again = decode_layout(encode(layout));
  assert_true(again.has_value());
  assert_true(again->host_names == layout.host_names);
  assert_true(again->host_of_rank == layout.host_of_rank);
}

void test_what_is_written_is_read(void**) {
  expect_same(layout_with({"one"}));
  expect_same(layout_with({"n1", "n1", "n2", "n2", "n10", "n10"}));
  expect_same(layout_with({"a", "b", "c", "a", "b", "c", "a"}));
  expect_same(layout_with({"big", "big", "big", "small", "", "other", "other"}));
  expect_same(layout_with({"name", "name-of-more", "na", "na"}));
  expect_same(layout_with({std::string(255, 'x'), std::string(254, 'x') + "y"}));
}

void test_a_host_name_that_is_too_long_is_cut(void**) {
  const auto again = decode_layout(encode(layout_with({std::string(300, 'x'), std::string(300, 'x') + "y"})));
  assert_true(again && again->host_names[0] == std::string(255, 'x'));
}

void test_a_large_job_fits_into_few_bytes(void**) {
  std::vector<std::string> host_names;
  for (int host = 0; host < 1250; ++host)
    host_names.insert(host_names.end(), 8, "node" + std::to_string(1000 + host));
  const JobLayout layout = layout_with(host_names);
  expect_same(layout);
  assert_in_range(encode(layout).size(), 1, 1250 * 4);
}

// Returns `count` hosts named "h", then one block of `hosts` hosts with `ranks` ranks each.
std::string bytes_of_block(uint32_t count, uint32_t hosts, uint32_t ranks, uint32_t first) {
  const auto number = [](uint32_t value) { return std::string(reinterpret_cast<const char*>(&value), 4); };
  std::string bytes = number(count);
  for (uint32_t i = 0; i < count; ++i) bytes += std::string("\0\1h", 3);
  return bytes + number(hosts) + number(ranks) + number(first);
}

void test_what_cannot_be_is_refused(void**) {
  assert_true(decode_layout(bytes_of_block(2, 2, 3, 0)).has_value());
  assert_false(decode_layout(bytes_of_block(2, 2, 3, 1)).has_value());
  assert_false(decode_layout(bytes_of_block(2, 0, 3, 0)).has_value());
  assert_false(decode_layout(bytes_of_block(2, 2, 0, 0)).has_value());
  assert_false(decode_layout(bytes_of_block(1, 1, kMaxJobRanks + 1, 0)).has_value());
  assert_false(decode_layout(bytes_of_block(2, UINT32_MAX, 1, 1)).has_value());
  // The first name cannot keep 5 bytes of a previous name.
  assert_false(decode_layout(std::string("\1\0\0\0\5\1h", 7)).has_value());
  const std::string whole = bytes_of_block(2, 2, 3, 0);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes)
    assert_false(decode_layout(whole.substr(0, bytes)).has_value());
  assert_false(decode_layout(whole + "x").has_value());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_what_is_written_is_read),
      cmocka_unit_test(test_a_host_name_that_is_too_long_is_cut),
      cmocka_unit_test(test_a_large_job_fits_into_few_bytes),
      cmocka_unit_test(test_what_cannot_be_is_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
