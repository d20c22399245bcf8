// Errors as values, and an environment that a test makes, for the tests of loading libraries.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <functional>
#include <initializer_list>
#include <map>
#include <string>

#include "base/environment.hpp"
#include "base/error.hpp"

extern "C" {
#include <cmocka.h>  // included last because it defines a macro fail()
}

namespace dsc::test {

using Variables = std::map<std::string, std::string>;

inline Environment environment_of(Variables variables) {
  return [variables = std::move(variables)](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

// What a body returned, or its error.
struct Outcome {
  int code = DSC_OK;
  std::string text;
};

inline Outcome outcome_of(const std::function<std::string()>& body) {
  try {
    return {DSC_OK, body()};
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
}

inline void check_outcome(const Outcome& outcome, int code, std::initializer_list<std::string> words,
                          int line) {
  bool good = outcome.code == code;
  for (const std::string& word : words) good = good && outcome.text.find(word) != std::string::npos;
  if (!good) print_error("line %d: got %s: %s\n", line, result_name(outcome.code), outcome.text.c_str());
  assert_true(good);
}

inline void check_equal(const Outcome& outcome, const std::string& text, int line) {
  if (outcome.code != DSC_OK || outcome.text != text)
    print_error("line %d: got %s: %s\nexpected: %s\n", line, result_name(outcome.code), outcome.text.c_str(),
                text.c_str());
  assert_true(outcome.code == DSC_OK && outcome.text == text);
}

}  // namespace dsc::test

// Checks that the outcome is a failure and that its text contains all these words.
#define CHECK_FAILURE(outcome, ...) \
  dsc::test::check_outcome(outcome, DSC_ERR_NO_BACKEND, {__VA_ARGS__}, __LINE__)
#define CHECK_TEXT(outcome, text) dsc::test::check_equal(outcome, text, __LINE__)
