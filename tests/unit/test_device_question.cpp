// The questions that ranks of different hosts ask each other about operations on devices, and the answers.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <random>
#include <string>

#include "control/job_event.hpp"
#include "engine_nccl/status_query.hpp"
#include "repetitions.h"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

namespace {

using namespace dsc;

constexpr size_t kMostAnswer = 512;  // in bytes; the limit of JobControl

CallThere example() {
  CallThere there;
  there.fingerprint = 0x123456789abcdef0;
  there.rank = 7;
  there.words = "all_reduce(sum, f32, 1000) on its device";
  there.late = {8, 11};
  there.late_text = "; rank 8 has not called this operation";
  return there;
}

void what_is_written_is_read(void**) {
  const StatusQuery question{OpKind::kRecv, 3, 70'000, uint64_t{1} << 40};
  assert_true(encode(question).size() <= kMostQuestion);
  const auto asked = decode_question(encode(question));
  assert_true(asked && asked->kind == question.kind && asked->rank == question.rank &&
              asked->peer == question.peer && asked->sequence == question.sequence);
  const CallThere sent = example();
  const auto came = decode_call(encode(sent));
  assert_true(came && came->fingerprint == sent.fingerprint && came->rank == sent.rank &&
              came->words == sent.words && came->late == sent.late && came->late_text == sent.late_text);
}

void long_lists_and_texts_are_cut(void**) {
  CallThere there = example();
  there.words.assign(5000, 'w');
  there.late.assign(5000, 9);
  there.late_text.assign(5000, 't');
  assert_true(encode(there).size() <= kMostAnswer);
  const auto came = decode_call(encode(there));
  assert_true(came && came->fingerprint == there.fingerprint && !came->words.empty() && !came->late.empty() &&
              !came->late_text.empty());
}

void what_is_none_is_refused(void**) {
  const std::string answer = encode(example()), question = encode(StatusQuery{});
  for (size_t bytes = 0; bytes < answer.size(); ++bytes)
    assert_false(decode_call(answer.substr(0, bytes)).has_value());
  for (size_t bytes = 0; bytes < question.size(); ++bytes)
    assert_false(decode_question(question.substr(0, bytes)).has_value());
  for (const char* text : {"", "no answer", "does not know the group", "nothing"}) {
    assert_false(decode_call(text).has_value());
    assert_false(decode_question(text).has_value());
  }
  assert_false(decode_call(answer + "x").has_value());
  std::mt19937 random(3);
  const int cases = test_repetitions(100'000, 10'000);
  for (int i = 0; i < cases; ++i) {
    std::string bad = answer.substr(0, random() % (answer.size() + 1));
    for (size_t n = random() % 4; n > 0 && !bad.empty(); --n)
      bad[random() % bad.size()] = static_cast<char>(random());
    if (const auto came = decode_call(bad)) assert_true(encode(*came).size() <= kMostAnswer);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(what_is_written_is_read),
      cmocka_unit_test(long_lists_and_texts_are_cut),
      cmocka_unit_test(what_is_none_is_refused),
  };
  return cmocka_run_group_tests_name("device_question", tests, nullptr, nullptr);
}
