// What the tests of the C++ layer share. A failed expectation is an exception, so that the objects of the
// test are released as in a program.
#ifndef TESTS_CPP_EXPECT_HPP
#define TESTS_CPP_EXPECT_HPP

#include <cstdio>
#include <dsc/dsc.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

struct failed_expectation : std::logic_error {
  using std::logic_error::logic_error;
};

#define EXPECT(condition)                                                               \
  do {                                                                                  \
    if (!(condition))                                                                   \
      throw failed_expectation(std::string(__FILE__) + ":" + std::to_string(__LINE__) + \
                               ": expected " #condition);                               \
  } while (0)

// Returns the dsc::error that a call throws.
template <class Call>
dsc::error error_of(Call&& call) {
  try {
    call();
  } catch (const dsc::error& caught) {
    return caught;
  }
  throw failed_expectation("expected a dsc::error, but the call returned");
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Runs one test and prints its name if it fails. Returns the number of failures, 0 or 1.
template <class Test>
int run_test(const char* name, Test&& test) {
  try {
    test();
    return 0;
  } catch (const std::exception& caught) {
    std::fprintf(stderr, "%s: %s\n", name, caught.what());
  }
  return 1;
}

#endif  // TESTS_CPP_EXPECT_HPP
