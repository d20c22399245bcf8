// Failure records that another process has written. They may contain any bytes, so every field must be
// bounded before its use.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "comm/outcome.hpp"
#include "control/job_event.hpp"
#include "repetitions.h"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

namespace {

using dsc::Failure;

Failure of_bytes(int byte) {
  Failure failure;
  std::memset(static_cast<void*>(&failure), byte, sizeof failure);
  return failure;
}

void assert_bounded(const Failure& failure) {
  assert_true(failure.code == DSC_OK || dsc::is_error(failure.code));
  assert_true(failure.ranks.size() <= dsc::RankList::kMost);
  assert_true(failure.text.str().size() < 512);
  assert_true(failure.operation.str().size() < 32);
  assert_true(failure.group_name.str().size() < 32);
}

void any_bytes_are_bounded(void**) {
  for (const int byte : {0x00, 0x01, 0x41, 0x7f, 0x80, 0xff}) {
    Failure failure = of_bytes(byte);
    failure.bound();
    assert_bounded(failure);
    if (byte != 0) assert_int_equal(failure.code, byte == 0xff ? DSC_ERR_INVALID_ARG : DSC_ERR_PROTOCOL);
  }
}

void random_bytes_are_bounded(void**) {
  std::mt19937 random(20261125);
  const int turns = test_repetitions(2000, 200);
  for (int turn = 0; turn < turns; ++turn) {
    std::string bytes(sizeof(Failure), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    Failure failure;
    std::memcpy(static_cast<void*>(&failure), bytes.data(), bytes.size());
    failure.bound();
    assert_bounded(failure);
    if (const auto decoded = dsc::decode_failure(bytes)) assert_bounded(*decoded);
  }
}

void ranks_of_no_member_are_removed(void**) {
  dsc::RankList ranks = {3, -1, 0, 4, INT32_MAX, 2, INT32_MIN};
  ranks.bound_to(4);
  assert_true(ranks == dsc::RankList({3, 0, 2}));
  ranks.bound_to(0);
  assert_true(ranks.empty());
}

void a_list_keeps_the_first_ranks(void**) {
  std::vector<int32_t> many(100);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<int32_t>(i);
  const dsc::RankList ranks(many);
  assert_int_equal(ranks.size(), dsc::RankList::kMost);
  assert_int_equal(*(ranks.end() - 1), 63);
}

// A step that fails on a rank with a corrupted record fails on all ranks, with a terminated text.
void an_outcome_of_any_bytes_is_a_failure(void**) {
  const auto failure = dsc::first_failure({Failure{}, of_bytes(0x41)});
  assert_true(failure.has_value());
  assert_bounded(*failure);
  assert_int_equal(failure->code, DSC_ERR_PROTOCOL);
  assert_true(failure->ranks == dsc::RankList({1}));
  assert_int_equal(failure->text.str().rfind("rank 1: AAAA", 0), 0);
}

void only_a_consequence_gives_way(void**) {
  Failure follows, first;
  follows.code = DSC_ERR_REVOKED;
  first.code = DSC_ERR_BACKEND;
  first.native_code = 7;
  const auto found = dsc::first_failure({follows, first, follows});
  assert_int_equal(found->code, DSC_ERR_BACKEND);
  assert_int_equal(found->native_code, 7);
  assert_true(found->ranks == dsc::RankList({1}));
  assert_int_equal(dsc::first_failure({Failure{}, follows})->code, DSC_ERR_REVOKED);
  assert_false(dsc::first_failure({Failure{}, Failure{}}).has_value());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(any_bytes_are_bounded),
      cmocka_unit_test(random_bytes_are_bounded),
      cmocka_unit_test(ranks_of_no_member_are_removed),
      cmocka_unit_test(a_list_keeps_the_first_ranks),
      cmocka_unit_test(an_outcome_of_any_bytes_is_a_failure),
      cmocka_unit_test(only_a_consequence_gives_way),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
